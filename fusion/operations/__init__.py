"""Operations on everything a query matches: what they may do, how they walk, who carries them on. docs/bulk.md is their page."""

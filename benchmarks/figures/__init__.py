"""What Fusion is to reach, each figure with its bound, measured beside the contenders that it names."""

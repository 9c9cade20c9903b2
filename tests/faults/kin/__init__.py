"""Jobs that know each other, among real workers that are killed."""

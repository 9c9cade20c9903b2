"""The contenders. Each module knows one library: how it enqueues and how its worker is started, both as its documentation tells."""

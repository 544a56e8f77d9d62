"""Object stores: objects at addresses, a mirrored data set, films fetched to a local cache."""

"""Object stores: objects at addresses, a mirrored dataset, films fetched to a local cache."""

"""Our own tables and figures: what the docs say of policies, codecs and slow workers."""

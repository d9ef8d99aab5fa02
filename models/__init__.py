"""Models on shared storage: manifests, the store, the `Model` class, and the built-in runtimes."""

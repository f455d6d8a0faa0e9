"""The stages of the product, as a library: what each reads, writes and depends on."""

"""The KV store: pages in a shared segment, framed, digested, written across processes without decode's help.

Import from the modules; this package imports nothing by itself, so that `layout` and `capacity` stay free of torch.
"""

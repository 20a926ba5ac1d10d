"""Who owns what: pages and slots with generations, leases and quarantine. No I/O, no tensors, no clock."""

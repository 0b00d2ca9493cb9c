"""What the rendezvous server stores: keys and values, notices of changed hosts, and the signature of a request."""

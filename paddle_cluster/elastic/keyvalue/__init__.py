"""The data of the rendezvous server: keys and values, notices of changed hosts, and signatures of requests."""

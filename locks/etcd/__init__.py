"""Locks by etcd."""

"""Locks among the processes of one machine, by the kernel's file locks."""

"""Decides which commands an agent may run, and with which options. It changes no table by itself."""

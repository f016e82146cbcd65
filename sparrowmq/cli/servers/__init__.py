"""Commands that run servers, and their settings."""

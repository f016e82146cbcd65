"""Tests that run the real thing beside ours: Apache RocketMQ servers, its Java clients, its admin tool."""

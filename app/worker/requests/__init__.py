"""Requests of clients and their answers: submissions, versions, requirements, slot shares, stops, explanations."""

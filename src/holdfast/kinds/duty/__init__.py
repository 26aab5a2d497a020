"""Duties: sessions that fire by a schedule or by events, each time as a child session. Pure except acts/."""

"""The course, section by section."""

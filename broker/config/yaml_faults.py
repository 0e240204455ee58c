"""A text that is no YAML is explained in words of the file instead of words of the parser."""

from __future__ import annotations

import re
from typing import Final

import yaml

LIST_LINE: Final = 'each item of a list stands in a line of its own that begins with "- "'

# Of the parser's context and problem, joined by a blank: the first pattern that is found. {1} is its group, {line} the line in
# which the thing begins that the parser was reading.
SENTENCES: Final = tuple(
    (re.compile(pattern), sentence)
    for pattern, sentence in (
        (r"'\\t'", "a tab stands where YAML takes only spaces; indent with spaces"),
        (r"found character '(.+)' that cannot start", 'a value cannot begin with {1}; put it in quotes, as "{1}..."'),
        (r"scanning an (?:alias|anchor)", 'a value that begins with "*" or "&" belongs in quotes'),
        (
            r"undefined alias '(.+)'",
            'nothing in the file has the anchor "&{1}"; a value that begins with "*" belongs in quotes',
        ),
        (r"duplicate anchor '(.+?)'", 'the anchor "&{1}" is there twice; give the second one another name'),
        (r"(?:scanning|parsing) a tag|tag handle", 'a value that begins with "!" belongs in quotes'),
        (r"directive", 'a line cannot begin with "%"; put the value in quotes'),
        (
            r"block scalar",
            'after "|" or ">" the text begins in the next line; put a value that begins with them in quotes',
        ),
        (
            r"unknown escape character '(.+)'",
            '"\\{1}" means nothing in double quotes; use single quotes, or write "\\\\"',
        ),
        (r"expected escape sequence", 'a "\\x", "\\u" or "\\U" in double quotes is not followed by its digits'),
        (r"quoted scalar", "the quote that begins in line {line} is not closed"),
        (r"could not find expected ':'", "the text of line {line} has no colon; a key is written KEY: VALUE"),
        (
            r"mapping values are not allowed",
            "a colon stands where no key can be: indent the line as the other keys of its section, end the line before with "
            'a colon if it is a key, and put a value that has ": " in it in quotes',
        ),
        (r"sequence entries are not allowed", f'a "-" stands where no list can begin; {LIST_LINE}'),
        (r"mapping keys are not allowed", 'a "?" stands where no key can begin; put the value in quotes'),
        (r"flow sequence", 'the list that begins with "[" in line {line} goes on with neither "," nor "]"'),
        (r"flow mapping", 'the mapping that begins with "{{" in line {line} goes on with neither "," nor "}}"'),
        (r"block collection", f"the line does not go on with the list of line {{line}}; {LIST_LINE}"),
        (
            r"block mapping.*found '<scalar>'",
            "text follows a value in quotes; put all of the value in one pair of quotes",
        ),
        (
            r"block mapping",
            "the line is not indented as the keys that begin in line {line}; give both the same indentation",
        ),
        (r"expected the node content", "a value is missing here"),
        (r"expected a single document", 'a second document begins here; a file has one, without a line "---"'),
        (r"document start", "the text here belongs to no key"),
    )
)
OTHERWISE: Final = "the text cannot be read from here on; look at the indentation, the colons and the quotes before it"


def yaml_fault(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """Return the line, counted from 1, and the sentence with the column; line 0 where the parser gives none."""
    problem = " ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    began = error.context_mark or mark
    sentence = OTHERWISE
    for pattern, text in SENTENCES:
        found = pattern.search(problem)
        if found is not None:
            sentence = text.format(*(found.group(0), *found.groups()), line=began.line + 1 if began else 0)
            break
    if mark is None:
        return 0, f"this is not YAML: {sentence}"
    return mark.line + 1, f"this is not YAML: column {mark.column + 1}: {sentence}"

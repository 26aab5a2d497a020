"""What no worker may change unless somebody says otherwise: tests, and what tests and CI are configured by.

Globs as git has them: `**/` stands for any number of folders, none included. Settings of tests that share a file with
others (`pyproject.toml`, `package.json`, `setup.cfg`) are left to whoever compares contents.
"""

from __future__ import annotations

TESTS = (
    *("tests/**", "test/**", "**/tests/**", "**/test/**", "**/__tests__/**", "**/testdata/**"),
    *("**/test_*.py", "**/*_test.py", "**/conftest.py"),
    *("**/*.test.js", "**/*.test.jsx", "**/*.test.ts", "**/*.test.tsx", "**/*.test.mjs", "**/*.test.cjs"),
    *("**/*.spec.js", "**/*.spec.jsx", "**/*.spec.ts", "**/*.spec.tsx", "**/*.spec.mjs", "**/*.spec.cjs"),
    *("**/*_test.go", "**/*_spec.rb", "spec/**"),
)

SETTINGS = (
    *("**/pytest.ini", "**/.pytest.ini", "**/tox.ini", "**/.coveragerc", "noxfile.py"),
    *("**/jest.config.*", "**/vitest.config.*", "**/playwright.config.*", "**/cypress.config.*", "**/karma.conf.*"),
    *("**/.mocharc.*", ".rspec"),
)

CI = (
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".circleci/**", "azure-pipelines.yml"),
    *("Jenkinsfile", ".travis.yml", ".buildkite/**", "bitbucket-pipelines.yml"),
)

MISSION = ("feature_list.json", "prd.json", "mission.toml")

HOOKS = (".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/**")
"""They run around the calls of the next worker."""

DEFAULT_PROTECTED = (*TESTS, *SETTINGS, *CI, *MISSION, *HOOKS)


def protected(source: str = "", more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The globs of a contract that was read from `source`, with those that it names itself."""
    return tuple(dict.fromkeys([*DEFAULT_PROTECTED, *([source] if source else []), *more]))

/**
 * Light or dark: as the system says, unless the person chose one here. The choice is `data-theme` on the root element
 * and is kept in this browser. The colours themselves are in styles/tokens.css.
 */

const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

const THEME_KEPT_AS = 'sluice.theme';

export function currentTheme(): Theme {
  const chosen = document.documentElement.dataset['theme'];
  return THEMES.find((theme) => theme === chosen) ?? 'system';
}

export function applyTheme(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme;
  try {
    if (theme === 'system') localStorage.removeItem(THEME_KEPT_AS);
    else localStorage.setItem(THEME_KEPT_AS, theme);
  } catch {
    // A browser that keeps nothing: the choice lasts as long as the page.
  }
}

export function applyKeptTheme(): void {
  try {
    const kept = localStorage.getItem(THEME_KEPT_AS);
    const theme = THEMES.find((each) => each === kept);
    if (theme !== undefined) applyTheme(theme);
  } catch {
    // As the system says, then.
  }
}

/**
 * Light or dark: as the system says, unless the person chose one here. The choice is `data-theme` on the root element
 * and is kept in this browser. The colours themselves are in styles/tokens.css.
 */

export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

const THEME_KEPT_AS = 'sluice.theme';
const dark = matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set<() => void>();

function tellListeners(): void {
  for (const listener of listeners) listener();
}

dark.addEventListener('change', tellListeners);

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
  tellListeners();
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

export function onThemeChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Where the page starts: the styles, the theme that was chosen, and the app. Everything else is reached from `app.tsx`.
 */

import './styles/tokens.css';
import './styles/base.css';
import './styles/components.css';
import './styles/forms.css';
import './styles/data.css';
import './styles/chart.css';
import './styles/shell.css';
import './styles/gate.css';
import { createRoot } from 'react-dom/client';
import { App } from './app.tsx';
import { applyKeptTheme } from './theme.ts';
import { takeWelcomeToken } from './welcome-token.ts';

applyKeptTheme();
takeWelcomeToken();

const root = document.getElementById('root');
if (root !== null) createRoot(root).render(<App />);

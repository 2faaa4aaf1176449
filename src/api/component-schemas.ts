/**
 * Every schema that has a title, under its title: the components of the OpenAPI document, in the order in which a reader
 * meets them.
 */

import { DASHBOARD_SCHEMAS } from './dashboard-schemas.ts';
import { READING_SCHEMAS } from './reading-schemas.ts';
import * as schemas from './schemas.ts';

export const COMPONENT_SCHEMAS = {
  IngestRequest: schemas.IngestRequest,
  User: schemas.User,
  Identifiers: schemas.Identifiers,
  UserProperties: schemas.UserProperties,
  Event: schemas.Event,
  IngestAccepted: schemas.IngestAccepted,
  UserError: schemas.UserError,
  ...READING_SCHEMAS,
  ...DASHBOARD_SCHEMAS,
  ValidationFailed: schemas.ValidationFailed,
  Unauthorized: schemas.Unauthorized,
  BadRequest: schemas.BadRequest,
  Forbidden: schemas.Forbidden,
  NotFound: schemas.NotFound,
  MethodNotAllowed: schemas.MethodNotAllowed,
  RequestTimeout: schemas.RequestTimeout,
  Conflict: schemas.Conflict,
  PayloadTooLarge: schemas.PayloadTooLarge,
  TooManyAttempts: schemas.TooManyAttempts,
  InternalError: schemas.InternalError,
  Unavailable: schemas.Unavailable,
  Alive: schemas.Alive,
  Ready: schemas.Ready,
  NotReady: schemas.NotReady,
};

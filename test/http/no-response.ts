/** A response for guards without a server. */
export const NO_RESPONSE = {
  statusCode: 200,
  writableEnded: false,
  writableFinished: false,
  end: () => {},
  once: () => {},
  off: () => {},
}

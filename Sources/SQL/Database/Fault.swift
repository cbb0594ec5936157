internal import Jobs

/// Why a statement failed, grouped by what the caller can do.
package enum Fault: Error {
  // The texts name the database, for the log.

  /// The connection broke or could not be made. A new connection may succeed.
  case lost(String)
  /// The server did not answer in time. It is unknown whether the statement took effect.
  case late
  /// Another transaction interfered (a deadlock, or an equal key at the same time). The transaction
  /// may succeed when repeated.
  case conflict(String)
  /// The disk is full.
  case full
  /// The database rejected the statement. Repeating it has the same result.
  case refused(String)
}

extension StoreError {
  /// Converts an error of the layers below to the error that callers see.
  init(cause: any Error) {
    switch cause {
    case let error as StoreError: self = error
    case Fault.full: self = .full
    case Fault.late: self = .unavailable(detail: "the database did not answer in time")
    case Fault.lost(let text), Fault.conflict(let text), Fault.refused(let text):
      self = .unavailable(detail: text)
    default: self = .unavailable(detail: "\(cause)")
    }
  }
}

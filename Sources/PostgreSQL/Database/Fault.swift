internal import CPQ
internal import Jobs

/// Why a statement failed, grouped by what the caller can do.
enum Fault: Error {
  /// The connection broke or could not be made. A new connection may succeed.
  case lost(String)
  /// The server did not answer in time. It is unknown whether the statement took effect.
  case late
  /// Another transaction interfered (a deadlock, or an equal key at the same time). The transaction
  /// may succeed when repeated.
  case conflict(String)
  /// The server's disk is full.
  case full
  /// The server rejected the statement. Repeating it has the same result.
  case refused(String)

  /// Maps the server's SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html).
  init(code: String, message: String) {
    let text = "\(message) (\(code))"
    switch code {
    case "40001", "40P01", "23505", "55P03": self = .conflict(text)
    case "53100": self = .full
    // The server is stopping, starting, out of connections, or has become a standby.
    case "57P01", "57P02", "57P03", "53300", "25006": self = .lost(text)
    case "57014", "25P03": self = .late
    default: self = code.hasPrefix("08") ? .lost(text) : .refused(text)
    }
  }
}

extension StoreError {
  /// Converts an error of the layers below to the error that callers see.
  init(cause: any Error) {
    switch cause {
    case let error as StoreError: self = error
    case Fault.full: self = .full
    case Fault.late: self = .unavailable(detail: "PostgreSQL did not answer in time")
    case Fault.lost(let text): self = .unavailable(detail: "PostgreSQL can't be reached: \(text)")
    case Fault.conflict(let text), Fault.refused(let text):
      self = .unavailable(detail: "PostgreSQL: \(text)")
    default: self = .unavailable(detail: "\(cause)")
    }
  }
}

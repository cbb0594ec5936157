internal import CPQ
internal import Jobs

/// Why a statement was not done, by what can be done about it.
enum Fault: Error {
  /// The connection broke, or none could be made: another one may do it.
  case lost(String)
  /// The server did not answer in time; nothing is known of what it did.
  case late
  /// Others were in the way (a deadlock, or an equal key at the same moment): the transaction, made again, may succeed.
  case conflict(String)
  /// The server's disk is full.
  case full
  /// The server answers no; it will the next time.
  case refused(String)

  /// What the server's code means (https://www.postgresql.org/docs/current/errcodes-appendix.html).
  init(code: String, message: String) {
    let text = "\(message) (\(code))"
    switch code {
    case "40001", "40P01", "23505", "55P03": self = .conflict(text)
    case "53100": self = .full
    // A server that stops, starts, has no connection left, or is a standby now.
    case "57P01", "57P02", "57P03", "53300", "25006": self = .lost(text)
    case "57014", "25P03": self = .late
    default: self = code.hasPrefix("08") ? .lost(text) : .refused(text)
    }
  }
}

extension StoreError {
  /// What an error of the layers below means to a caller.
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

internal import HTTPTypes
internal import Jobs

/// An error as a client sees it (RFC 9457): what a handler throws, and what a failed job carries.
struct Problem: Error, Sendable {
  /// Which one; tells its title and type.
  var code: ProblemCode
  /// The answer's status.
  var status: HTTPResponse.Status
  /// What happened this time and who can mend it, for people.
  var detail: String
  /// Which rule or limit it was, where the code stands for several.
  var reason: String?
  /// Each single mistake of a request, where there are several or one has a place.
  var errors: [FieldError] = []
  /// The failure of the job that the request is about.
  var failure: JobFailure?
  /// Header fields that belong to it: `Retry-After`, `Allow`, `WWW-Authenticate`.
  var fields: HTTPFields = [:]
  /// What only the log may know.
  var logged: String?

  /// - Parameter status: nil: the code's usual one.
  init(_ code: RequestCode, _ detail: String, status: HTTPResponse.Status? = nil) {
    self.init(.request(code), detail, status)
  }

  /// - Parameter status: nil: the code's usual one.
  init(_ code: FailureCode, _ detail: String, status: HTTPResponse.Status? = nil) {
    self.init(.job(code), detail, status)
  }

  private init(_ code: ProblemCode, _ detail: String, _ status: HTTPResponse.Status?) {
    self.code = code
    self.status = status ?? code.row.status
    self.detail = detail
  }

  /// The same with a header field.
  func with(_ name: HTTPField.Name, _ value: String) -> Problem {
    var copy = self
    copy.fields[name] = value
    return copy
  }

  /// `application/problem+json`.
  func encoded(requestID: String) -> [UInt8] {
    var writer = JSONWriter()
    writer.object { json in
      json.member("type", code.type)
      json.member("title", code.row.title)
      json.member("status", status.code)
      json.member("detail", detail)
      json.member("code", code.name)
      if let reason { json.member("reason", reason) }
      if !errors.isEmpty {
        json.key("errors")
        json.array(errors) { $1.write(to: &$0) }
      }
      if code == .request(.imageUnavailable) {
        json.key("error")
        if let failure { failure.write(to: &json) } else { json.null() }
      }
      json.member("request_id", requestID)
    }
    return writer.bytes
  }
}

/// One mistake in a request.
struct FieldError: Equatable, Sendable {
  /// Where it is.
  enum Place: Equatable, Sendable {
    /// In a JSON body: a JSON Pointer (RFC 6901).
    case pointer(String)
    /// In the query, by its name; in a form, the part's.
    case parameter(String)
    /// In a header field.
    case header(String)
  }
  var place: Place
  var code: RequestCode
  var detail: String

  func write(to writer: inout JSONWriter) {
    writer.object { json in
      switch place {
      case .pointer(let pointer): json.member("pointer", pointer)
      case .parameter(let name): json.member("parameter", name)
      case .header(let name): json.member("header", name)
      }
      json.member("code", code.rawValue)
      json.member("detail", detail)
    }
  }
}

extension JobFailure {
  /// The problem object that a failed job shows.
  func write(to writer: inout JSONWriter) {
    let (detail, originStatus) = described
    let code = ProblemCode.job(self.code)
    writer.object { json in
      json.member("type", code.type)
      json.member("title", code.row.title)
      json.member("detail", detail)
      json.member("code", code.name)
      json.member("retryable", isRetryable)
      json.member("origin_status", originStatus)
      if let reason { json.member("reason", reason) }
    }
  }
}

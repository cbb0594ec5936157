internal import HTTPTypes
internal import Jobs

/// An error for a client (RFC 9457): thrown by handlers, and the `error` of a failed job.
struct Problem: Error, Sendable {
  /// Determines the title and the type.
  var code: ProblemCode
  /// The status of the response.
  var status: HTTPResponse.Status
  /// What happened and what to do, for people.
  var detail: String
  /// The exceeded limit or violated rule, if the code has several.
  var reason: String?
  /// The mistakes of a request, if there are several or one has a place.
  var errors: [FieldError] = []
  /// The failure of the requested job.
  var failure: JobFailure?
  /// Header fields of the response: `Retry-After`, `Allow`, `WWW-Authenticate`.
  var fields: HTTPFields = [:]
  /// A text for the log only.
  var logged: String?

  /// - Parameter status: nil: the default status of the code.
  init(_ code: RequestCode, _ detail: String, status: HTTPResponse.Status? = nil) {
    self.init(.request(code), detail, status)
  }

  /// - Parameter status: nil: the default status of the code.
  init(_ code: FailureCode, _ detail: String, status: HTTPResponse.Status? = nil) {
    self.init(.job(code), detail, status)
  }

  private init(_ code: ProblemCode, _ detail: String, _ status: HTTPResponse.Status?) {
    self.code = code
    self.status = status ?? code.row.status
    self.detail = detail
  }

  /// Returns a copy with a header field.
  func with(_ name: HTTPField.Name, _ value: String) -> Problem {
    var copy = self
    copy.fields[name] = value
    return copy
  }

  /// Encodes `application/problem+json`.
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
  /// The place of a mistake.
  enum Place: Equatable, Sendable {
    /// In a JSON body: a JSON Pointer (RFC 6901).
    case pointer(String)
    /// In the query: the parameter's name. In a form: the part's name.
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
  /// The `error` member of a failed job.
  func write(to writer: inout JSONWriter) {
    let explanation = explanation
    let code = ProblemCode.job(explanation.code)
    writer.object { json in
      json.member("type", code.type)
      json.member("title", code.row.title)
      json.member("detail", explanation.detail)
      json.member("code", code.name)
      json.member("retryable", explanation.isRetryable)
      json.member("origin_status", explanation.originStatus)
      if let reason = explanation.reason { json.member("reason", reason) }
    }
  }
}

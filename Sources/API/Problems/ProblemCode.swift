internal import HTTPTypes
internal import Jobs

/// The code of a problem (RFC 9457). Every error that can reach a client has one. Its row has the status, title and
/// advice.
enum ProblemCode: Hashable, CaseIterable, Sendable {
  case request(RequestCode)
  case job(FailureCode)

  /// The properties that all problems with a code share.
  struct Row {
    /// The default status of the response.
    let status: HTTPResponse.Status
    let title: String
    /// An explanation with names in backticks; nil if the title is enough.
    let meaning: String?
    /// Advice for the client or the operator. Plain text without `&` and `<`.
    let advice: String

    fileprivate init(_ status: HTTPResponse.Status, _ title: String, _ advice: String) {
      (self.status, self.title, self.meaning, self.advice) = (status, title, nil, advice)
    }

    /// A failed job is still a 200. The status is used only for the failures that a request can have too.
    fileprivate init(_ row: FailureCode.Row) {
      status =
        switch row.fault {
        case .client: .unprocessableContent
        case .origin: .badGateway
        case .slowOrigin: .gatewayTimeout
        case .service: .internalServerError
        case .fullService: .serviceUnavailable
        }
      (title, meaning, advice) = (row.title, row.meaning, row.advice)
    }
  }

  static var allCases: [ProblemCode] {
    RequestCode.allCases.map(request) + FailureCode.allCases.map(job)
  }

  /// - Parameter name: the code in the API's spelling.
  init?(name: String) {
    guard let code = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = code
  }

  /// The code in the API's spelling.
  var name: String {
    switch self {
    case .request(let code): code.rawValue
    case .job(let code): code.rawValue
    }
  }

  var row: Row {
    switch self {
    case .request(let code): code.row
    case .job(let code): Row(code.row)
    }
  }

  /// The problem's `type` (RFC 9457): the path of its page (``page``).
  var type: String { Destination.problems + name }
}

/// A mistake in a request, or a state of the service that prevents it. A new code needs a case and a row.
enum RequestCode: String, CaseIterable, Sendable {
  case malformedJSON = "malformed_json"
  case malformedRequest = "malformed_request"
  case missingURL = "missing_url"
  case invalidURL = "invalid_url"
  case invalidLocalName = "invalid_local_name"
  case invalidOption = "invalid_option"
  case unsupportedMediaType = "unsupported_media_type"
  case bodyTooLarge = "body_too_large"
  case targetTooLong = "target_too_long"
  case headerTooLarge = "header_too_large"
  case unauthorized
  case forbidden
  case notFound = "not_found"
  case methodNotAllowed = "method_not_allowed"
  case imageUnavailable = "image_unavailable"
  case imageGone = "image_gone"
  case preconditionFailed = "precondition_failed"
  case conflict
  case rangeNotSatisfiable = "range_not_satisfiable"
  case queueFull = "queue_full"
  case tooManyBatches = "too_many_batches"
  case tooManyMessages = "too_many_messages"
  case rateLimited = "rate_limited"
  case starting
  case draining
  case overloaded
  case storeUnavailable = "store_unavailable"

  /// Status, title and advice.
  var row: ProblemCode.Row {
    typealias Row = ProblemCode.Row
    return switch self {
    case .malformedJSON:
      Row(
        .badRequest, "The body is not valid JSON",
        "Send JSON in UTF-8. detail names the line and the column of the first mistake.")
    case .malformedRequest:
      Row(
        .badRequest, "The request is malformed",
        """
        detail names the rule of HTTP that the request breaks. Correct it. The usual cause is a hand-written client \
        or a proxy, seldom an HTTP library.
        """)
    case .missingURL:
      Row(
        .unprocessableContent, "The source is missing",
        """
        Set url, or local for an image in the folder sources.local_root. A form has a part named image.
        """)
    case .invalidURL:
      Row(
        .unprocessableContent, "A URL is not valid",
        """
        Send an absolute URL that begins with http:// or https://, without a user name, of at most 8,192 bytes. \
        Percent-encode characters of the path that are not ASCII.
        """)
    case .invalidLocalName:
      Row(
        .unprocessableContent, "The name of a local image is not valid",
        """
        Set local to the file's path below the folder sources.local_root, without . and .. segments. If \
        sources.local_root is not set, the service has no local images.
        """)
    case .invalidOption:
      Row(
        .unprocessableContent, "An option is not valid",
        """
        errors has one entry per mistake, with its place (a JSON Pointer, a query parameter or a header field) and \
        the values that are allowed there. Correct them all. Unknown members are mistakes too, so that spelling \
        mistakes are found.
        """)
    case .unsupportedMediaType:
      Row(
        .unsupportedMediaType, "The media type is not supported",
        """
        Set Content-Type to one of the types that detail lists, and send the body in that type without \
        Content-Encoding.
        """)
    case .bodyTooLarge:
      Row(
        .contentTooLarge, "The body is too large",
        """
        Send a smaller image, or split the batch. The limits are server.max_body, api.max_batch and, for /batches, \
        api.max_batch_lines.
        """)
    case .targetTooLong:
      Row(
        .uriTooLong, "The request target is too long",
        "Shorten the path and query to 8,192 bytes. POST /jobs accepts long URLs in its body.")
    case .headerTooLarge:
      Row(
        .requestHeaderFieldsTooLarge, "The header section is too large",
        "Send fewer or shorter header fields. The usual cause is long cookies.")
    case .unauthorized:
      Row(
        .unauthorized, "A valid token is required",
        """
        Send Authorization: Bearer with a token of this service. The operator issues tokens (auth.tokens).
        """)
    case .forbidden:
      Row(
        .forbidden, "The request is not allowed",
        """
        The token lacks a scope, the signature of the URL is wrong or has expired, or a web page of another origin \
        sent the request to a service without tokens. detail says which. Ask the operator for a token with the \
        scope, or sign the URL again.
        """)
    case .notFound:
      Row(
        .notFound, "There is nothing here",
        """
        Check the path and the id. A job can be read by its owner until jobs.retention ends or it is purged. Submit \
        it again after that.
        """)
    case .methodNotAllowed:
      Row(
        .methodNotAllowed, "The method is not allowed here",
        "Use one of the methods in the field Allow.")
    case .imageUnavailable:
      Row(
        .notFound, "The job has no image",
        """
        The job failed or was cancelled; error has the reason. POST /jobs/{id}/fetch tries again. With \
        placeholder=true the response is a placeholder image.
        """)
    case .imageGone:
      Row(
        .gone, "The image is no longer stored",
        """
        The image was evicted to free space (storage.max_bytes), or its file was corrupt. POST /jobs/{id}/fetch \
        fetches it again.
        """)
    case .preconditionFailed:
      Row(
        .preconditionFailed, "The ETag is not current",
        """
        The job, the list of jobs or the image has changed since the client read it. Read it again, check that the \
        request still makes sense, and send it with the new ETag in If-Match.
        """)
    case .conflict:
      Row(
        .conflict, "The batch does not continue at this line",
        """
        Read the batch: received says how many lines it has. Continue with the next one. A batch that is no longer \
        receiving accepts no lines; create another batch.
        """)
    case .rangeNotSatisfiable:
      Row(
        .rangeNotSatisfiable, "The range is outside the image",
        "Request a range within the image. The field Content-Range of this response has its size.")
    case .queueFull:
      Row(
        .serviceUnavailable, "The queue is full",
        """
        Retry after the time in Retry-After. The operator can raise jobs.max_queued, or find out why the queue \
        grows.
        """)
    case .tooManyBatches:
      Row(
        .tooManyRequests, "The owner has too many unfinished batches",
        """
        Wait until some have finished, close the ones that get no more lines (POST /batches/{id}/close), or cancel \
        them (DELETE /batches/{id}). The limit per owner is api.max_batches.
        """)
    case .tooManyMessages:
      Row(
        .tooManyRequests, "Too many webhook messages are waiting",
        """
        Find out why the receiver does not accept them: GET /jobs/{id}/webhooks has its responses. Until then submit \
        without notify, or with notify for the batch only. The limit per owner is webhooks.max_waiting.
        """)
    case .rateLimited:
      Row(
        .tooManyRequests, "Too many requests",
        """
        Retry after the time in Retry-After. Send fewer requests or use fewer connections: follow events or use \
        wait, instead of polling. detail names the limit: auth.rate_limit, a limit of the token, or the client's \
        part of the connections.
        """)
    case .starting:
      Row(
        .serviceUnavailable, "The service is starting",
        "Retry after the time in Retry-After, usually one second.")
    case .draining:
      Row(
        .serviceUnavailable, "The service is stopping",
        "Retry after the time in Retry-After, or send the request to another instance.")
    case .overloaded:
      Row(
        .serviceUnavailable, "The service is overloaded",
        "Retry after the time in Retry-After. Smaller batches and fewer connections help.")
    case .storeUnavailable:
      Row(
        .serviceUnavailable, "The store is unavailable",
        """
        Retry after the time in Retry-After. A database, an object store or a disk fails: the operator finds it in \
        the log, under the request_id.
        """)
    }
  }
}

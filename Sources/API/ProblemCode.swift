internal import HTTPTypes
internal import Jobs

/// Which problem it is (RFC 9457): every error that can reach a client has one, and its code, status and prose here.
enum ProblemCode: Hashable, CaseIterable, Sendable {
  case request(RequestCode)
  case job(FailureCode)

  /// What is the same for every occurrence.
  struct Row {
    /// The answer's status, unless the error says another.
    let status: HTTPResponse.Status
    let title: String
    /// What whoever gets it can do about it; plain text without `&` and `<`.
    let advice: String

    init(_ status: HTTPResponse.Status, _ title: String, _ advice: String) {
      self.status = status
      self.title = title
      self.advice = advice
    }
  }

  static var allCases: [ProblemCode] {
    RequestCode.allCases.map(request) + FailureCode.allCases.map(job)
  }

  /// - Parameter name: as clients get it.
  init?(name: String) {
    guard let code = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = code
  }

  /// As clients get it.
  var name: String {
    switch self {
    case .request(let code): code.rawValue
    case .job(let code): code.rawValue
    }
  }

  var row: Row {
    switch self {
    case .request(let code): code.row
    case .job(let code): code.row
    }
  }

  /// What identifies it: the path of the page that tells what to do (``page``).
  var type: String { Destination.problems + name }
}

/// What is wrong with a request, or with the service at the moment: a new one is a case and its row.
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

  /// How it is told.
  var row: ProblemCode.Row {
    typealias Row = ProblemCode.Row
    return switch self {
    case .malformedJSON:
      Row(
        .badRequest, "The body is not JSON",
        "Send a body that is JSON in UTF-8. The detail names the line and the column where it stops being JSON."
      )
    case .malformedRequest:
      Row(
        .badRequest, "The request is malformed",
        """
        Send the request as HTTP has it. The detail says which rule it breaks; a client library of its own is \
        seldom at fault, a hand-written one or a proxy often.
        """)
    case .missingURL:
      Row(
        .unprocessableContent, "No source is given",
        """
        Name the image's source: the member url, or local for an image of the service's own folder. A form has \
        a part named image.
        """)
    case .invalidURL:
      Row(
        .unprocessableContent, "A URL cannot be used",
        """
        Send an absolute URL that begins with http:// or https://, has no user name in it, and at most 8,192 \
        bytes. What is not ASCII in its path is percent-encoded.
        """)
    case .invalidLocalName:
      Row(
        .unprocessableContent, "A local image's name cannot be used",
        """
        Name a file by its path below the folder sources.local_root, without . and .. parts. Where there is no \
        such folder, the service has no local images.
        """)
    case .invalidOption:
      Row(
        .unprocessableContent, "An option cannot be used",
        """
        Mend what the list errors names: each entry has the place (a JSON Pointer, a query parameter or a \
        header field) and says what goes there. Members that are not known are mistakes too, so that no typing \
        error goes unnoticed.
        """)
    case .unsupportedMediaType:
      Row(
        .unsupportedMediaType, "This media type is not taken here",
        """
        Set Content-Type to what the body is and what this path takes, which the detail lists, and send it \
        without a Content-Encoding.
        """)
    case .bodyTooLarge:
      Row(
        .contentTooLarge, "The body is too large",
        """
        Send less at once: a smaller image, or a batch in parts. The limits are server.max_body, api.max_batch \
        and, for lists, api.max_batch_lines.
        """)
    case .targetTooLong:
      Row(
        .uriTooLong, "The request target is too long",
        "Shorten the path and query to 8,192 bytes. POST /jobs takes long URLs in its body.")
    case .headerTooLarge:
      Row(
        .requestHeaderFieldsTooLarge, "The header section is too large",
        "Send fewer or shorter header fields; long cookies are the usual reason.")
    case .unauthorized:
      Row(
        .unauthorized, "A valid token is needed",
        """
        Send Authorization: Bearer and a token of this service's. Whoever runs it gives them out \
        (auth.tokens).
        """)
    case .forbidden:
      Row(
        .forbidden, "This is not allowed",
        """
        The token lacks a scope, the signed URL is not good or has expired, or a web page of another origin \
        asked a service without tokens. The detail says which: ask whoever runs the service for a token with \
        that scope, or sign the URL anew.
        """)
    case .notFound:
      Row(
        .notFound, "There is nothing here",
        """
        Check the path and the id. A job is there for whoever submitted it, until jobs.retention is over or it \
        is purged; then it has to be submitted again.
        """)
    case .methodNotAllowed:
      Row(
        .methodNotAllowed, "The method is not allowed here",
        "Use one of the methods that the field Allow lists.")
    case .imageUnavailable:
      Row(
        .notFound, "The job has no image",
        """
        The job failed or was cancelled: its error, in the member error, says why. POST /jobs/{id}/fetch tries \
        again; placeholder=true gets a picture that stands in for the image.
        """)
    case .imageGone:
      Row(
        .gone, "The image is no longer kept",
        """
        The image was evicted to make room (storage.max_bytes), or its file was harmed. POST /jobs/{id}/fetch \
        fetches it again.
        """)
    case .preconditionFailed:
      Row(
        .preconditionFailed, "It is at another version",
        """
        Somebody else changed the job meanwhile, a list of jobs went on, or the image is another one. Get it again, look \
        whether the request is still wanted, and send it with the new ETag in If-Match.
        """)
    case .conflict:
      Row(
        .conflict, "The batch goes on elsewhere",
        """
        Get the batch: its member received says which line comes next. One that is no longer receiving takes no \
        more lines; begin another batch.
        """)
    case .rangeNotSatisfiable:
      Row(
        .rangeNotSatisfiable, "There are no such bytes",
        "Ask for a range within the image: the field Content-Range of this answer has its size.")
    case .queueFull:
      Row(
        .serviceUnavailable, "The queue is full",
        """
        Wait for as long as Retry-After says and send the request again. Whoever runs the service can allow \
        more (jobs.max_queued), or find out why the queue grows.
        """)
    case .tooManyBatches:
      Row(
        .tooManyRequests, "Too many batches are under way",
        """
        Wait until some are over, or end what nobody goes on with: POST /batches/{id}/close, DELETE \
        /batches/{id}. The limit for one owner is api.max_batches.
        """)
    case .tooManyMessages:
      Row(
        .tooManyRequests, "Too many messages wait for their receivers",
        """
        Look why the receiver does not take them: GET /jobs/{id}/webhooks tells what it answered. Until it does, \
        submit without notify, or have a batch alone tell of its end. The limit for one owner is \
        webhooks.max_waiting.
        """)
    case .rateLimited:
      Row(
        .tooManyRequests, "Too many requests",
        """
        Wait for as long as Retry-After says, and ask less often or over fewer connections: events in place of \
        polling, wait in place of asking again. The limit is auth.rate_limit.
        """)
    case .starting:
      Row(
        .serviceUnavailable, "The service is starting",
        "The service has just been started: send the request again in a second.")
    case .draining:
      Row(
        .serviceUnavailable, "The service is stopping",
        """
        The service is being stopped, or replaced by a new one: send the request again in some seconds, or to \
        another instance.
        """)
    case .overloaded:
      Row(
        .serviceUnavailable, "The service has too much to do at the moment",
        """
        Wait for as long as Retry-After says and send the request again. Smaller batches and fewer connections \
        help.
        """)
    case .storeUnavailable:
      Row(
        .serviceUnavailable, "What keeps the jobs and images does not answer",
        """
        Wait for as long as Retry-After says and send the request again. Whoever runs the service finds in its \
        log, by the request_id, what was asked in vain: a database, an object store or a disk.
        """)
    }
  }
}

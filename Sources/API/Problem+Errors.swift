internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Every error that can reach a client, and the one place where it gets its code, status and prose. No `switch` here
/// has a `default`: a new case does not compile until it is worded.
enum ProblemCode: String, CaseIterable, Sendable {
  // What is wrong with a request, or with the service at the moment.
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
  case rangeNotSatisfiable = "range_not_satisfiable"
  case queueFull = "queue_full"
  case rateLimited = "rate_limited"
  case starting, draining, overloaded
  // Why a job failed, as `FailureCode` has it; the last two can also befall a request.
  case blockedAddress = "blocked_address"
  case dnsFailure = "dns_failure"
  case connectFailure = "connect_failure"
  case tlsFailure = "tls_failure"
  case timeout
  case stalled
  case tooManyRedirects = "too_many_redirects"
  case originStatus = "origin_status"
  case noData = "no_data"
  case tooLarge = "too_large"
  case tooManyPixels = "too_many_pixels"
  case unsupportedFormat = "unsupported_format"
  case truncated
  case decodeFailed = "decode_failed"
  case integrityMismatch = "integrity_mismatch"
  case notCached = "not_cached"
  case localNotFound = "local_not_found"
  case storageFull = "storage_full"
  case `internal`

  /// What identifies it: the path of the page that tells what to do (`page`).
  var type: String { Destination.problems + rawValue }

  /// The answer's status, unless the error says another. A job's failure is never an answer by itself; its status here
  /// tells whose fault it is: the client's (4xx), the origin's (502, 504), ours (500, 503).
  var status: HTTPResponse.Status {
    switch self {
    case .malformedJSON, .malformedRequest: .badRequest
    case .missingURL, .invalidURL, .invalidLocalName, .invalidOption: .unprocessableContent
    case .unsupportedMediaType: .unsupportedMediaType
    case .bodyTooLarge: .contentTooLarge
    case .targetTooLong: .uriTooLong
    case .headerTooLarge: .requestHeaderFieldsTooLarge
    case .unauthorized: .unauthorized
    case .forbidden: .forbidden
    case .notFound, .imageUnavailable: .notFound
    case .methodNotAllowed: .methodNotAllowed
    case .imageGone: .gone
    case .preconditionFailed: .preconditionFailed
    case .rangeNotSatisfiable: .rangeNotSatisfiable
    case .queueFull, .starting, .draining, .overloaded, .storageFull: .serviceUnavailable
    case .rateLimited: .tooManyRequests
    case .blockedAddress, .integrityMismatch, .localNotFound, .notCached: .unprocessableContent
    case .timeout, .stalled: .gatewayTimeout
    case .dnsFailure, .connectFailure, .tlsFailure, .tooManyRedirects, .originStatus, .noData,
      .tooLarge, .tooManyPixels, .unsupportedFormat, .truncated, .decodeFailed:
      .badGateway
    case .internal: .internalServerError
    }
  }

  /// The same for every occurrence.
  var title: String {
    switch self {
    case .malformedJSON: "The body is not JSON"
    case .malformedRequest: "The request is malformed"
    case .missingURL: "No source is given"
    case .invalidURL: "A URL cannot be used"
    case .invalidLocalName: "A local image's name cannot be used"
    case .invalidOption: "An option cannot be used"
    case .unsupportedMediaType: "This media type is not taken here"
    case .bodyTooLarge: "The body is too large"
    case .targetTooLong: "The request target is too long"
    case .headerTooLarge: "The header section is too large"
    case .unauthorized: "A valid token is needed"
    case .forbidden: "This is not allowed"
    case .notFound: "There is nothing here"
    case .methodNotAllowed: "The method is not allowed here"
    case .imageUnavailable: "The job has no image"
    case .imageGone: "The image is no longer kept"
    case .preconditionFailed: "The job is at another version"
    case .rangeNotSatisfiable: "There are no such bytes"
    case .queueFull: "The queue is full"
    case .rateLimited: "Too many requests"
    case .starting: "The service is starting"
    case .draining: "The service is stopping"
    case .overloaded: "The service has too much to do at the moment"
    case .blockedAddress: "The URL leads where this service does not go"
    case .dnsFailure: "The origin's name could not be resolved"
    case .connectFailure: "The origin could not be reached"
    case .tlsFailure: "The origin could not be trusted"
    case .timeout: "The transfer took too long"
    case .stalled: "The origin stopped sending"
    case .tooManyRedirects: "Too many redirects"
    case .originStatus: "The origin answered with another status than 200"
    case .noData: "The origin sent no data"
    case .tooLarge: "The image has too many bytes"
    case .tooManyPixels: "The image is too large to decode"
    case .unsupportedFormat: "The bytes are no image of a supported format"
    case .truncated: "The transfer ended early"
    case .decodeFailed: "The image is broken"
    case .integrityMismatch: "The bytes are not the expected ones"
    case .notCached: "The image is not in the cache"
    case .localNotFound: "There is no such local image"
    case .storageFull: "There is no room to keep the image"
    case .internal: "Something went wrong in this service"
    }
  }
}

extension Problem {
  /// Why the engine did not do as asked.
  ///
  /// - Parameter isBatch: whether the request was an array of jobs, so that a mistake's place begins with an index.
  init(_ error: JobsError, isBatch: Bool = false) {
    switch error {
    case .unknownJob:
      self.init(
        .notFound, "No job has this id: it never had, it has expired, or it is someone else's.")
    case .queueFull:
      self.init(.queueFull, "As many jobs are queued as may be; try again later.")
      fields[.retryAfter] = "5"
    case .keyReused:
      self.init(.invalidOption, "This Idempotency-Key was used before with another request.")
      errors = [
        FieldError(place: .header("Idempotency-Key"), code: .invalidOption, detail: detail)
      ]
    case .invalidLocalNames(let places):
      var mistakes = Mistakes()
      for place in places {
        let location = Location(root: .body(index: isBatch ? place : nil), member: "local")
        mistakes.add(
          location, .invalidLocalName,
          "It leads out of this service's folder of images, or to no file.")
      }
      self = mistakes.problem ?? Problem(.invalidLocalName, "A name cannot be used.")
    case .versionDiffers:
      self.init(
        .preconditionFailed, "If-Match names no version that the job has; GET tells its ETag.")
    case .imageGone:
      self.init(
        .imageGone,
        "The image gave way to newer ones, or was harmed on the disk. POST …/fetch asks for it again."
      )
    case .renderingsFull:
      self.init(.queueFull, "As many variants wait to be rendered as may; try again later.")
      fields[.retryAfter] = "2"
    case .unrenderable(let error):
      self.init(unrenderable: error)
    case .abandoned:
      // Nobody reads it: the client that asked has left.
      self.init(.malformedRequest, "The client left before its answer.")
    case .starting:
      self.init(.starting, "This service will take work in a moment.")
    case .draining:
      self.init(.draining, "This service is stopping and takes no new work; ask another one.")
      fields[.retryAfter] = "5"
    case .store(let error): self.init(error)
    }
  }

  /// Why a variant of an image can't be made. That it is too large for that lies in the request; bytes that were decoded
  /// whole before and now aren't, in the image.
  private init(unrenderable error: CodecError) {
    let code = ProblemCode(error.code)
    let isOrigins = code == .decodeFailed
    self.init(code, error.described, status: isOrigins ? .badGateway : .unprocessableContent)
    reason = error.reason
  }

  /// Why the store could not.
  init(_ error: StoreError) {
    switch error {
    case .full:
      self.init(.storageFull, "This service has no room left; try again later.")
      fields[.retryAfter] = "60"
    case .leaseLost, .unavailable, .unreadable:
      self.init(.internal, "The fault is on this side; nothing is wrong with the request.")
      logged = "\(error)"
    }
  }

  /// What a request is answered with for which there is no room at the moment.
  static func noRoom(_ detail: String) -> Problem {
    Problem(.overloaded, detail).with(.retryAfter, "2")
  }

  /// Why a request's content did not come whole.
  init(_ error: BodyError) {
    switch error {
    case .tooLarge(let limit): self.init(.bodyTooLarge, "At most \(limit) bytes are taken here.")
    case .disconnected: self.init(.malformedRequest, "The content ended before its end.")
    }
  }

  /// Why a request's content could not be read.
  init(_ error: JSONError) {
    switch error {
    case .malformed(let reason, let line, let column):
      self.init(.malformedJSON, "Line \(line), column \(column): \(reason).")
    case .tooMuch(let limit):
      self.init(.bodyTooLarge, "The JSON holds more than \(limit).")
    }
  }

  /// Why a form could not be read.
  init(_ error: MultipartError) {
    switch error {
    case .malformed(let reason): self.init(.malformedRequest, "The form is malformed: \(reason).")
    case .headerTooLarge(let limit):
      self.init(.headerTooLarge, "A part's header section is longer than \(limit) bytes.")
    }
  }

  /// Why the server refused a request before anyone handled it.
  init(_ refusal: Refusal) {
    switch refusal {
    case .malformed(let detail): self.init(.malformedRequest, detail)
    case .targetTooLong(let limit):
      self.init(.targetTooLong, "At most \(limit) bytes are taken.")
    case .headerTooLarge(let limit):
      self.init(.headerTooLarge, "More than \(limit) bytes, or too many fields.")
    case .bodyTooLarge(let limit):
      self.init(.bodyTooLarge, "At most \(limit) bytes are taken here.")
    case .unknownTransferCoding:
      self.init(
        .malformedRequest, "The only transfer coding known here is chunked.",
        status: .notImplemented)
    case .unknownExpectation:
      self.init(
        .malformedRequest, "The only expectation known here is 100-continue.",
        status: .expectationFailed)
    case .overloaded:
      self = .noRoom("As many connections are open as may; try again later.")
    }
  }
}

extension ProblemCode {
  /// A failure's code has the same name here: a test holds each to that.
  init(_ code: FailureCode) { self = ProblemCode(rawValue: code.rawValue)! }
}

extension JobFailure {
  /// The failure in the client's words.
  var described: (detail: String, originStatus: Int?) {
    switch self {
    case .fetch(let error): return error.described
    case .codec(let error): return (error.described, nil)
    case .integrityMismatch(let expected, let actual):
      let detail = "The SHA-256 is \(actual.hex), not \(expected.hex) as the job demands."
      return (detail, nil)
    case .notCached: return ("The job asks for a cached image only.", nil)
    case .localNotFound(let name):
      return ("This service has no image named \(name.shortened).", nil)
    case .storageFull:
      return ("This service has no room for the image; try again later.", nil)
    case .internal:
      return ("The fault is on this side; the operator's log knows more.", nil)
    }
  }
}

extension FetchError {
  fileprivate var described: (detail: String, originStatus: Int?) {
    switch self {
    case .blocked(let target, let reason):
      return ("\(target.shortened) \(reason.described)", nil)
    case .dnsFailure(let host, let detail):
      return ("\(host.shortened): \(detail.shortened).", nil)
    case .connectFailure(let host, let detail), .noResponse(let host, let detail):
      return ("\(host.shortened): \(detail.shortened).", nil)
    case .unreachable(let origin, let failures, let seconds):
      let requests = failures == 1 ? "1 request" : "\(failures) requests in a row"
      let pause = Int(max(0, min(seconds, 86_400)).rounded(.up))
      return (
        "\(origin.shortened) could not be reached by \(requests); it is tried again in \(pause) s.",
        nil
      )
    case .tlsFailure(let host, let detail):
      return ("\(host.shortened): \(detail.shortened).", nil)
    case .timeout(let seconds):
      return ("The origin had not sent the whole image after \(seconds.plain) s.", nil)
    case .stalled(let seconds): return ("The origin sent no byte for \(seconds.plain) s.", nil)
    case .tooManyRedirects(let limit):
      return ("The origin redirects more than \(limit) times.", nil)
    case .badRedirect(let status, let location):
      let how =
        location == nil
        ? "without saying where to" : "to what is no http or https URL without a user name"
      return ("The origin redirects (\(status)) \(how).", status)
    case .originStatus(let status, _):
      return ("The origin answered \(status).", status)
    case .noData: return ("There is not a byte of content.", nil)
    case .tooLarge(let limit): return ("More than \(limit) bytes are not taken.", nil)
    case .truncated(let received, let expected):
      let all = expected.map { " of \($0)" } ?? ""
      return ("The transfer ended after \(received)\(all) bytes.", nil)
    case .unsupportedCoding(let coding):
      return ("The content is coded as \(coding.shortened), which is not taken here.", nil)
    case .brokenCoding(let coding):
      return ("The content breaks the rules of \(coding.shortened), as which it is coded.", nil)
    case .cancelled: return ("The transfer was stopped.", nil)
    }
  }
}

extension JobFailure {
  /// Which rule or limit it was, in one word; nil where the code says all.
  var reason: String? {
    switch self {
    case .fetch(.blocked(_, let reason)): reason.word
    case .codec(let error): error.reason
    case .fetch, .integrityMismatch, .notCached, .localNotFound, .storageFull, .internal: nil
    }
  }
}

extension Double {
  /// Without a fraction where it has none.
  fileprivate var plain: String { Int(exactly: self)?.description ?? description }
}

extension BlockReason {
  /// The API's word for it.
  fileprivate var word: String {
    switch self {
    case .address: "address"
    case .host: "host"
    case .port: "port"
    case .scheme: "scheme"
    }
  }

  /// Never the address itself: who may not go there may not learn what a name stands for inside.
  fileprivate var described: String {
    switch self {
    case .address: "is at an address that this service does not fetch from."
    case .host: "is a host that this service does not fetch from."
    case .port(let port): "uses port \(port), which this service does not fetch from."
    case .scheme(let scheme): "uses \(scheme.shortened), which this service does not fetch by."
    }
  }
}

extension CodecError {
  /// Named formats that are no images.
  private static let others: Set = [
    "7z", "AVI", "ELF", "FLAC", "Flash", "HTML", "JSON", "MP3", "MP4", "MPEG", "Matroska", "Ogg",
    "PDF", "PostScript", "QuickTime", "RAR", "RIFF", "WAV", "WOFF", "XML", "ZIP", "Zstandard",
    "bzip2", "gzip", "xz",
  ]

  private static func withArticle(_ name: String) -> String {
    if others.contains(name) { return name }
    let article = ["AVIF", "ICO", "MNG", "OpenEXR", "SVG", "XCF"].contains(name) ? "an" : "a"
    return "\(article) \(name) image"
  }

  /// Which limit of `too_many_pixels` it was; nil for other codes.
  fileprivate var reason: String? {
    switch self {
    case .tooManyPixels: "pixels"
    case .dimensionTooLarge: "dimensions"
    case .tooManyScans: "scans"
    case .tooManyFrames: "frames"
    case .tooMuchMemory: "memory"
    case .unsupportedFormat, .cutShort, .broken: nil
    }
  }

  fileprivate var described: String {
    switch self {
    case .unsupportedFormat(let name?):
      "This is \(Self.withArticle(name.shortened)), which is not taken here."
    case .unsupportedFormat(nil): "The bytes are no known image's."
    case .tooManyPixels(let width, let height, let limit):
      "\(width) × \(height) is more than \(limit) pixels."
    case .dimensionTooLarge(let width, let height, let limit):
      "\(width) × \(height): a side is longer than \(limit) pixels."
    case .tooManyScans(let limit): "It has more than \(limit) scans."
    case .tooManyFrames(let limit):
      "It has more frames than are taken, by their number or their pixels: \(limit)."
    case .tooMuchMemory(let bytes, let limit):
      "Decoding it takes \(bytes) bytes of memory, more than \(limit)."
    case .cutShort: "The image ends before its last pixel."
    case .broken(let format, let detail):
      "It breaks the rules of \(format.rawValue): \(detail.shortened)."
    }
  }
}

extension String {
  /// At most 256 characters of what others worded.
  fileprivate var shortened: String { utf8.count <= 256 ? self : prefix(256) + "…" }
}

internal import HTTP
internal import HTTPTypes
internal import Jobs

extension Problem {
  /// The problem for an error of the job engine.
  ///
  /// - Parameter isBatch: whether the request was an array of jobs, so that the place of a mistake begins with an
  ///   index.
  init(_ error: JobsError, isBatch: Bool = false) {
    switch error {
    case .unknownJob:
      self.init(
        .notFound,
        "No job with this id exists: it has expired, was purged, or belongs to another owner.")
    case .unknownBatch:
      self.init(
        .notFound,
        "No batch with this id exists: it has expired, was purged, or belongs to another owner.")
    case .batchContinuesElsewhere(let batch):
      self.init(
        .conflict,
        batch.state == .receiving
          ? "The batch has received \(batch.received) lines. Continue with the next one."
          : "The batch is \(batch.state.rawValue) and accepts no more lines. Create another batch.")
    case .queueFull:
      self.init(.queueFull, "The queue is full. Retry after the time in Retry-After.")
      fields[.retryAfter] = "5"
    case .recordsFull:
      self.init(
        .storageFull,
        "The job records have reached storage.max_record_bytes. Purge finished jobs, or wait until they expire."
      )
      fields[.retryAfter] = "60"
    case .tooManyBatches:
      self.init(
        .tooManyBatches,
        "The owner has api.max_batches unfinished batches. Close or cancel some, or wait until they finish."
      )
      fields[.retryAfter] = "30"
    case .tooManyMessages:
      self.init(
        .tooManyMessages,
        "The owner has webhooks.max_waiting undelivered messages. Check why the receivers do not accept them."
      )
      fields[.retryAfter] = "60"
    case .dailyBytesExceeded(let rest):
      self.init(
        .rateLimited, "The token's limit of bytes per day is reached. Retry after 00:00 UTC."
      )
      fields[.retryAfter] = "\(Int(rest.inSeconds.rounded(.up)))"
    case .keyReused:
      self.init(
        .invalidOption, "This Idempotency-Key was used with a different request. Use a new key.")
      errors = [
        FieldError(place: .header("Idempotency-Key"), code: .invalidOption, detail: detail)
      ]
    case .invalidLocalNames(let places):
      var mistakes = RequestErrors()
      for place in places {
        let location = Location(root: .body(index: isBatch ? place : nil), member: "local")
        mistakes.add(
          location, .invalidLocalName,
          "Must name a file below sources.local_root.")
      }
      self = mistakes.problem ?? Problem(.invalidLocalName, "A name is not valid.")
    case .versionDiffers:
      self.init(
        .preconditionFailed,
        "If-Match does not match the job's ETag. Get the job, and use its ETag.")
    case .imageGone:
      self.init(
        .imageGone,
        "The image was evicted to free space, or its file was corrupt. POST …/fetch fetches it again."
      )
    case .renderingsFull:
      self.init(
        .queueFull,
        "Too many variants are waiting to be rendered. Retry after the time in Retry-After.")
      fields[.retryAfter] = "2"
    case .unrenderable(let error):
      self.init(unrenderable: error)
    case .abandoned:
      // The client has disconnected and does not receive this.
      self.init(.malformedRequest, "The client disconnected before the response.")
    case .starting:
      self.init(.starting, "The service is starting. Retry after the time in Retry-After.")
      fields[.retryAfter] = "1"
    case .draining:
      self.init(
        .draining,
        "The service is stopping and accepts no new jobs. Retry later, or use another instance.")
      fields[.retryAfter] = "5"
    case .store(let error): self.init(error)
    }
  }

  /// The problem for a variant that can't be made. If the variant is too large, the status is 422. If bytes that were
  /// decoded before can't be decoded now, it is 502.
  private init(unrenderable error: CodecError) {
    let status: HTTPResponse.Status =
      switch error.code {
      case .decodeFailed, .decoderCrashed: .badGateway
      case .internal: .internalServerError
      default: .unprocessableContent
      }
    self.init(error.code, error.clientDetail, status: status)
    reason = error.reason
  }

  /// The problem for an error of the store.
  init(_ error: StoreError) {
    switch error {
    case .full:
      self.init(
        .storageFull, "The service has no storage space left. Retry after the time in Retry-After.")
      fields[.retryAfter] = "60"
    case .leaseLost, .unavailable:
      self.init(
        .storeUnavailable, "The store is unavailable. Retry after the time in Retry-After.")
      fields[.retryAfter] = "2"
      logged = "\(error)"
    case .unreadable:
      self.init(.internal, "The service had an internal error. The request is not the cause.")
      logged = "\(error)"
    }
  }

  /// The 503 for a request that exceeds a limit of memory or connections for the moment.
  static func overloaded(_ detail: String) -> Problem {
    Problem(.overloaded, detail).with(.retryAfter, "2")
  }

  /// The problem for a request body that was not received completely.
  init(_ error: BodyError) {
    switch error {
    case .tooLarge(let limit):
      self.init(.bodyTooLarge, "The body is longer than \(limit) bytes. Send a shorter one.")
    case .disconnected:
      self.init(.malformedRequest, "The body ended early. Send the request again.")
    }
  }

  /// The problem for a body that is not the JSON expected.
  init(_ error: JSONError) {
    switch error {
    case .malformed(let reason, let line, let column):
      self.init(.malformedJSON, "Line \(line), column \(column): \(reason).")
    case .tooMuch(let limit):
      self.init(.bodyTooLarge, "The JSON has more than \(limit). Send less at once.")
    }
  }

  /// The problem for a malformed form.
  init(_ error: MultipartError) {
    switch error {
    case .malformed(let reason): self.init(.malformedRequest, "The form is malformed: \(reason).")
    case .headerTooLarge(let limit):
      self.init(.headerTooLarge, "A part's header section is longer than \(limit) bytes.")
    }
  }

  /// The problem for a request that the HTTP server refused before routing.
  init(_ refusal: Refusal) {
    switch refusal {
    case .malformed(let detail): self.init(.malformedRequest, detail)
    case .targetTooLong(let limit):
      self.init(.targetTooLong, "The request target is longer than \(limit) bytes. Shorten it.")
    case .headerTooLarge(let limit):
      self.init(
        .headerTooLarge,
        "The header section has more than \(limit) bytes or too many fields. Send fewer.")
    case .bodyTooLarge(let limit):
      self.init(.bodyTooLarge, "The body is longer than \(limit) bytes. Send a shorter one.")
    case .unknownTransferCoding:
      self.init(
        .malformedRequest, "The transfer coding is not supported. Use chunked or Content-Length.",
        status: .notImplemented)
    case .unknownExpectation:
      self.init(
        .malformedRequest, "The expectation is not supported. Use 100-continue or none.",
        status: .expectationFailed)
    case .overloaded:
      self = .overloaded("Too many connections are open. Retry after the time in Retry-After.")
    }
  }
}

extension JobFailure {
  /// The `detail` of a failed job, and the status of the origin's response.
  var clientDetail: (detail: String, originStatus: Int?) {
    switch self {
    case .fetch(let error): return error.clientDetail
    case .codec(let error): return (error.clientDetail, nil)
    case .integrityMismatch(let expected, let actual):
      let detail = "The SHA-256 is \(actual.hex). The job's integrity requires \(expected.hex)."
      return (detail, nil)
    case .notCached:
      return ("The cache has no response for this URL, and the job must not ask the origin.", nil)
    case .localNotFound(let name):
      return ("There is no local image named \(name.shortened).", nil)
    case .delivery(let error): return (error.clientDetail, nil)
    case .storageFull:
      return ("The service has no storage space for the image. Try again later.", nil)
    case .internal:
      return ("The service had an internal error. See its log.", nil)
    }
  }
}

extension DeliveryError {
  fileprivate var clientDetail: String {
    switch self {
    case .refused(let to, let status, let code):
      "\(to.shortened) responded with \(status)" + (code.map { " (\($0.shortened))." } ?? ".")
    case .unreachable(let to, .timeout), .unreachable(let to, .stalled):
      "\(to.shortened) did not accept the image in time."
    case .unreachable(let to, let error):
      "\(to.shortened) could not be reached: \(error.clientDetail.detail)"
    case .differs(let to): "\(to.shortened) stored different bytes than were sent."
    case .unknown(let to): "The destination \(to.shortened) is no longer configured."
    case .noCredentials(let to):
      "The service has no credentials for \(to.shortened). See its log."
    case .longKey(let to): "The key at \(to.shortened) is longer than 1,024 bytes."
    case .unreadable, .cancelled: "The service had an internal error. See its log."
    }
  }
}

extension WebhookMessage.Attempt {
  /// Why the attempt failed, for clients; nil: it succeeded.
  var clientDetail: String? {
    switch failure {
    case .blocked(let target, let reason)?:
      "\(target.shortened) \(reason.clientDetail("send", "to"))"
    case .timeout?, .stalled?: "The receiver did not answer in time."
    case let failure?: failure.clientDetail.detail
    case nil: isTaken ? nil : status.map { "The receiver responded with \($0)." }
    }
  }
}

extension FetchError {
  fileprivate var clientDetail: (detail: String, originStatus: Int?) {
    switch self {
    case .blocked(let target, let reason):
      return ("\(target.shortened) \(reason.clientDetail("fetch", "from"))", nil)
    case .dnsFailure(let host, let detail):
      return ("\(host.shortened): \(detail.shortened).", nil)
    case .badHost(let host): return ("\(host.shortened) is not a valid host name.", nil)
    case .connectFailure(let host, let detail), .noResponse(let host, let detail):
      return ("\(host.shortened): \(detail.shortened).", nil)
    case .unreachable(let origin, let failures, let seconds):
      let requests = failures == 1 ? "1 request" : "\(failures) requests in a row"
      let pause = Int(max(0, min(seconds, 86_400)).rounded(.up))
      return (
        "\(origin.shortened) failed \(requests) and is paused. The next attempt is in \(pause) s.",
        nil
      )
    case .tlsFailure(let host, let detail):
      return ("\(host.shortened): \(detail.shortened).", nil)
    case .timeout(let seconds):
      return ("The origin did not send the whole image within \(seconds.plain) s.", nil)
    case .stalled(let seconds): return ("The origin sent no bytes for \(seconds.plain) s.", nil)
    case .tooManyRedirects(let limit):
      return ("The origin redirects more than \(limit) times.", nil)
    case .badRedirect(let status, let location):
      let how =
        location == nil
        ? "without a target" : "to a URL that is not http or https, or has a user name"
      return ("The origin redirects (\(status)) \(how).", status)
    case .originStatus(let status, _):
      return ("The origin responded with \(status).", status)
    case .noData: return ("The image has no bytes.", nil)
    case .tooLarge(let limit): return ("The image has more than \(limit) bytes.", nil)
    case .headerTooLarge(.lines(let limit)):
      return ("The response's header section has more than \(limit) lines of fields.", nil)
    case .headerTooLarge(.bytes(let limit)):
      return ("The response's header section has more than \(limit) bytes.", nil)
    case .truncated(let received, let expected):
      let all = expected.map { " of \($0)" } ?? ""
      return ("The transfer ended early, after \(received)\(all) bytes.", nil)
    case .unsupportedCoding(let coding):
      return ("The content coding \(coding.shortened) is not supported.", nil)
    case .brokenCoding(let coding):
      return ("The content is not valid \(coding.shortened).", nil)
    case .cancelled: return ("The transfer was cancelled.", nil)
    }
  }
}

extension JobFailure {
  /// The exceeded limit or violated rule, in one word; nil if the code is enough.
  var reason: String? {
    switch self {
    case .fetch(.blocked(_, let reason)): reason.word
    case .codec(let error): error.reason
    case .fetch, .integrityMismatch, .notCached, .localNotFound, .delivery, .storageFull,
      .internal:
      nil
    }
  }
}

extension Double {
  /// The number without a fraction if it is whole.
  fileprivate var plain: String { Int(exactly: self)?.description ?? description }
}

extension BlockReason {
  /// The reason in the API's spelling.
  fileprivate var word: String {
    switch self {
    case .address: "address"
    case .host: "host"
    case .port: "port"
    case .scheme: "scheme"
    }
  }

  /// The description never contains the address. Clients must not learn how names resolve inside the network.
  fileprivate func clientDetail(_ verb: String, _ preposition: String) -> String {
    switch self {
    case .address: "has an address that this service may not \(verb) \(preposition)."
    case .host: "is a host that this service may not \(verb) \(preposition)."
    case .port(let port):
      "uses port \(port), which this service may not \(verb) \(preposition)."
    case .scheme(let scheme): "uses \(scheme.shortened), which this service may not \(verb) with."
    }
  }
}

extension CodecError {
  /// Format names that are not images.
  private static let others: Set = [
    "7z", "AVI", "ELF", "FLAC", "Flash", "HTML", "JSON", "MP3", "MP4", "MPEG", "Matroska", "Ogg",
    "PDF", "PostScript", "QuickTime", "RAR", "RIFF", "WAV", "WOFF", "XML", "ZIP", "Zstandard",
    "bzip2", "gzip", "xz",
  ]

  private static func withArticle(_ name: String) -> String {
    if others.contains(name) { return name }
    let isAn = "AEIO".contains(name.prefix(1)) || ["MNG", "SVG", "XCF"].contains(name)
    return "\(isAn ? "an" : "a") \(name) image"
  }

  /// The exceeded limit of `too_many_pixels`; nil for other codes.
  fileprivate var reason: String? {
    switch self {
    case .tooManyPixels: "pixels"
    case .dimensionTooLarge: "dimensions"
    case .tooManyScans: "scans"
    case .tooManyFrames: "frames"
    case .tooMuchMemory: "memory"
    case .unsupportedFormat, .cutShort, .broken, .crashed, .noDecoder: nil
    }
  }

  fileprivate var clientDetail: String {
    switch self {
    case .unsupportedFormat(let name?):
      "The file is \(Self.withArticle(name.shortened)), which is not supported."
    case .unsupportedFormat(nil): "The bytes are not an image of a known format."
    case .tooManyPixels(let width, let height, let limit):
      "The image has \(width) × \(height) pixels, more than \(limit)."
    case .dimensionTooLarge(let width, let height, let limit):
      "The image has \(width) × \(height) pixels: a side is longer than \(limit)."
    case .tooManyScans(let limit): "The image has more than \(limit) scans."
    case .tooManyFrames(let limit):
      "The image has too many frames, by number or by pixels. The limit is \(limit)."
    case .tooMuchMemory(let bytes, let limit):
      "Decoding the image needs \(bytes) bytes of memory, more than \(limit)."
    case .cutShort: "The image ends before its last pixel."
    case .broken(let format, let detail):
      "The image is not valid \(format.rawValue): \(detail.shortened)."
    case .crashed(let how): "The decoder process failed: \(how.shortened)."
    case .noDecoder: "The service had an internal error. See its log."
    }
  }
}

extension String {
  /// At most 256 bytes of a text from outside.
  fileprivate var shortened: String { utf8.count <= 256 ? self : prefix(bytes: 256) + "…" }
}

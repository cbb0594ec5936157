internal import HTTP
internal import HTTPTypes
internal import Jobs

extension Problem {
  /// Why the engine did not do as asked.
  ///
  /// - Parameter isBatch: whether the request was an array of jobs, so that a mistake's place begins with an index.
  init(_ error: JobsError, isBatch: Bool = false) {
    switch error {
    case .unknownJob:
      self.init(
        .notFound, "No job has this id: it never had, it has expired, or it is someone else's.")
    case .unknownBatch:
      self.init(
        .notFound, "No batch has this id: it never had, it has expired, or it is someone else's.")
    case .batchGoesOnElsewhere(let batch):
      self.init(
        .conflict,
        batch.state == .receiving
          ? "The batch has received \(batch.received) lines: it goes on from there."
          : "The batch is \(batch.state.rawValue): it takes no more lines.")
    case .queueFull:
      self.init(.queueFull, "As many jobs are queued as may be; try again later.")
      fields[.retryAfter] = "5"
    case .recordsFull:
      self.init(
        .storageFull,
        "The records of jobs take as much space as they may. Purge finished jobs, or wait until they expire."
      )
      fields[.retryAfter] = "60"
    case .tooManyBatches:
      self.init(.tooManyBatches, "As many of your batches are under way as may be.")
      fields[.retryAfter] = "30"
    case .tooManyMessages:
      self.init(
        .tooManyMessages, "As many messages wait for your receivers as may: they do not take them.")
      fields[.retryAfter] = "60"
    case .bytesSpent(let rest):
      self.init(
        .rateLimited, "As many bytes came today as this token lets come; the day ends at 00:00 UTC."
      )
      fields[.retryAfter] = "\(Int(rest.inSeconds.rounded(.up)))"
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
      fields[.retryAfter] = "1"
    case .draining:
      self.init(.draining, "This service is stopping and takes no new work; ask another one.")
      fields[.retryAfter] = "5"
    case .store(let error): self.init(error)
    }
  }

  /// Why a variant of an image can't be made. That it is too large for that lies in the request; bytes that were decoded
  /// whole before and now aren't, in the image.
  private init(unrenderable error: CodecError) {
    let status: HTTPResponse.Status =
      switch error.code {
      case .decodeFailed, .decoderCrashed: .badGateway
      case .internal: .internalServerError
      default: .unprocessableContent
      }
    self.init(error.code, error.described, status: status)
    reason = error.reason
  }

  /// Why the store could not.
  init(_ error: StoreError) {
    switch error {
    case .full:
      self.init(.storageFull, "This service has no room left; try again later.")
      fields[.retryAfter] = "60"
    case .leaseLost, .unavailable:
      self.init(
        .storeUnavailable, "The fault is on this side, and may pass; try again in a moment.")
      fields[.retryAfter] = "2"
      logged = "\(error)"
    case .unreadable:
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
    case .delivery(let error): return (error.described, nil)
    case .storageFull:
      return ("This service has no room for the image; try again later.", nil)
    case .internal:
      return ("The fault is on this side; the operator's log knows more.", nil)
    }
  }
}

extension DeliveryError {
  fileprivate var described: String {
    switch self {
    case .refused(let to, let status, let code):
      "\(to.shortened) answered \(status)" + (code.map { " (\($0.shortened))." } ?? ".")
    case .unreachable(let to, .timeout), .unreachable(let to, .stalled):
      "\(to.shortened) did not take the image in time."
    case .unreachable(let to, let error):
      "\(to.shortened) was not reached: \(error.described.detail)"
    case .differs(let to): "\(to.shortened) stored other bytes than it was sent."
    case .unknown(let to): "This service has no destination \(to.shortened) any more."
    case .noCredentials(let to):
      "This service has no credentials for \(to.shortened); the operator's log knows more."
    case .longKey(let to): "The key at \(to.shortened) would have more than 1,024 bytes."
    case .unreadable, .cancelled: "The fault is on this side; the operator's log knows more."
    }
  }
}

extension WebhookMessage.Try {
  /// Why it was not taken, in the client's words; nil: it was.
  var described: String? {
    switch failure {
    case .blocked(let target, let reason)?:
      "\(target.shortened) \(reason.described("send", "to"))"
    case .timeout?, .stalled?: "The receiver did not answer in time."
    case let failure?: failure.described.detail
    case nil: isTaken ? nil : status.map { "The receiver answered \($0)." }
    }
  }
}

extension FetchError {
  fileprivate var described: (detail: String, originStatus: Int?) {
    switch self {
    case .blocked(let target, let reason):
      return ("\(target.shortened) \(reason.described("fetch", "from"))", nil)
    case .dnsFailure(let host, let detail):
      return ("\(host.shortened): \(detail.shortened).", nil)
    case .badHost(let host): return ("\(host.shortened) is no name that can have an address.", nil)
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
    case .tooLarge(let limit): return ("The image has more than \(limit) bytes.", nil)
    case .headerTooLarge(.lines(let limit)):
      return ("The response's header section has more than \(limit) lines of fields.", nil)
    case .headerTooLarge(.bytes(let limit)):
      return ("The response's header section has more than \(limit) bytes.", nil)
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
    case .fetch, .integrityMismatch, .notCached, .localNotFound, .delivery, .storageFull,
      .internal:
      nil
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
  fileprivate func described(_ verb: String, _ preposition: String) -> String {
    switch self {
    case .address: "is at an address that this service does not \(verb) \(preposition)."
    case .host: "is a host that this service does not \(verb) \(preposition)."
    case .port(let port):
      "uses port \(port), which this service does not \(verb) \(preposition)."
    case .scheme(let scheme): "uses \(scheme.shortened), which this service does not \(verb) by."
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
    case .unsupportedFormat, .cutShort, .broken, .crashed, .noDecoder: nil
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
    case .crashed(let how): "Its decoder was lost, and took nothing with it: \(how.shortened)."
    case .noDecoder: "The fault is on this side; the operator's log knows more."
    }
  }
}

extension String {
  /// At most 256 bytes of what others worded.
  fileprivate var shortened: String { utf8.count <= 256 ? self : prefix(bytes: 256) + "…" }
}

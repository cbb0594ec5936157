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
    self.init(error.code, error.explanation.detail, status: status)
    reason = error.explanation.reason
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

extension WebhookMessage.Attempt {
  /// Why the attempt failed, for clients; nil: it succeeded.
  var clientDetail: String? {
    switch failure {
    case .blocked(let target, let reason)?:
      "\(target.shortened) \(reason.texts("send", "to").detail)"
    case .timeout?, .stalled?: "The receiver did not answer in time."
    case let failure?: failure.explanation.detail
    case nil: isTaken ? nil : status.map { "The receiver responded with \($0)." }
    }
  }
}

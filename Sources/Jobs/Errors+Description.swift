// Descriptions of errors for the operator's log. The module `API` has the texts for clients.

extension StoreError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .full: "no room is left"
    case .leaseLost: "the lease is over"
    case .unavailable(let detail), .unreadable(let detail): detail
    }
  }
}

extension LocalImageError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .notFound: "there is none of that name"
    case .outside: "the name leads out of the folder"
    case .notAFile: "it is a folder, a device, a FIFO or a socket"
    case .unavailable(let detail): detail
    }
  }
}

extension JobsError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .unknownBatch: "there is no such batch"
    case .batchGoesOnElsewhere(let batch):
      "the batch is \(batch.state.rawValue) and has \(batch.received) lines"
    case .unknownJob: "there is no such job"
    case .bytesSpent: "the owner had all the bytes that it may have today"
    case .queueFull: "the queue is full"
    case .recordsFull: "the records of jobs have as many bytes as they may"
    case .tooManyBatches: "as many batches are under way as may"
    case .tooManyMessages: "as many messages wait as may"
    case .keyReused: "the idempotency key came with another request"
    case .invalidLocalNames: "a name leads out of the folder of local images"
    case .versionDiffers: "the job has another version"
    case .imageGone: "the image is no longer kept"
    case .renderingsFull: "as many variants wait as may"
    case .unrenderable(let error): "no variant can be made: \(error.code.rawValue)"
    case .abandoned: "the client has left"
    case .starting: "the service is starting"
    case .draining: "the service is stopping"
    case .store(let error): error.description
    }
  }
}

extension JobFailure: CustomStringConvertible {
  public var description: String {
    switch self {
    case .fetch(let error): error.description
    case .codec(let error): error.description
    case .integrityMismatch(_, let actual): "the bytes have the SHA-256 \(actual.hex)"
    case .notCached: "nothing is cached"
    case .localNotFound(let name): "there is no local image \(name)"
    case .delivery(let error): error.description
    case .storageFull: "no room is left"
    case .internal: "a fault of the service"
    }
  }
}

extension FetchError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .blocked(let target, let reason): "\(target): \(reason)"
    case .dnsFailure(let host, let detail), .connectFailure(let host, let detail),
      .noResponse(let host, let detail), .tlsFailure(let host, let detail):
      "\(host): \(detail)"
    case .badHost(let host): "\(host): no name that can have an address"
    case .unreachable(let origin, let failures, let seconds):
      "\(origin): not reached \(failures) times in a row, left alone for \(seconds) s"
    case .timeout(let seconds): "not done after \(seconds) s"
    case .stalled(let seconds): "no byte for \(seconds) s"
    case .tooManyRedirects(let limit): "more than \(limit) redirects"
    case .badRedirect(let status, let location):
      location.map { "a redirect, \(status), to \($0)" } ?? "a redirect, \(status), to nowhere"
    case .originStatus(let status, let retryAfter):
      "status \(status)" + (retryAfter.map { ", Retry-After \($0) s" } ?? "")
    case .noData: "not a byte of content"
    case .tooLarge(let limit): "more than \(limit) bytes"
    case .headerTooLarge(.lines(let limit)): "a header section of more than \(limit) lines"
    case .headerTooLarge(.bytes(let limit)): "a header section of more than \(limit) bytes"
    case .truncated(let received, let expected):
      "\(received) bytes" + (expected.map { " of \($0)" } ?? " and no end")
    case .unsupportedCoding(let coding): "the content coding \(coding)"
    case .brokenCoding(let coding): "no whole \(coding) stream"
    case .cancelled: "the transfer was stopped"
    }
  }
}

extension BlockReason: CustomStringConvertible {
  public var description: String {
    switch self {
    case .address(let address, let name): "\(address) is in \(name)"
    case .host: "the host is not allowed"
    case .port(let port): "port \(port) is not allowed"
    case .scheme(let scheme): "the scheme \(scheme) is not allowed"
    }
  }
}

extension CodecError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .unsupportedFormat(let name): name.map { "the format is \($0)" } ?? "no known format"
    case .tooManyPixels(let width, let height, let limit):
      "\(width) x \(height) is more than \(limit) pixels"
    case .dimensionTooLarge(let width, let height, let limit):
      "\(width) x \(height): a side has more than \(limit) pixels"
    case .tooManyScans(let limit): "more than \(limit) scans"
    case .tooManyFrames(let limit): "more frames than \(limit), by their number or their pixels"
    case .tooMuchMemory(let bytes, let limit): "\(bytes) bytes of memory, more than \(limit)"
    case .cutShort: "the image ends before its last pixel"
    case .broken(let format, let detail): "broken \(format.rawValue): \(detail)"
    case .crashed(let how): "the decoder was lost: \(how)"
    case .noDecoder: "no decoder process could be had"
    }
  }
}

extension DeliveryError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .refused(let to, let status, let code):
      "\(to) answered \(status)" + (code.map { " \($0)" } ?? "")
    case .unreachable(let to, let error): "\(to): \(error)"
    case .differs(let to): "\(to) stored other bytes than it was sent"
    case .unknown(let to): "there is no destination \(to)"
    case .noCredentials(let to): "there are no credentials for \(to)"
    case .longKey(let to): "the key at \(to) would be too long"
    case .unreadable(let to): "what was to go to \(to) can't be read"
    case .cancelled: "the delivery was stopped"
    }
  }
}

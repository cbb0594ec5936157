// Descriptions of errors for the operator's log. The module `API` has the texts for clients.

extension StoreError: CustomStringConvertible {
  package var description: String {
    switch self {
    case .full: "no space is left"
    case .leaseLost: "the lease has ended"
    case .unavailable(let detail), .unreadable(let detail): detail
    }
  }
}

extension LocalImageError: CustomStringConvertible {
  package var description: String {
    switch self {
    case .notFound: "the file does not exist"
    case .outside: "the path leads out of the folder"
    case .notAFile: "the path is a folder, a device, a FIFO or a socket"
    case .unavailable(let detail): detail
    }
  }
}

extension JobsError: CustomStringConvertible {
  package var description: String {
    switch self {
    case .unknownBatch: "the batch does not exist"
    case .batchContinuesElsewhere(let batch):
      "the batch is \(batch.state.rawValue) and has \(batch.received) lines"
    case .unknownJob: "the job does not exist"
    case .dailyBytesExceeded: "the owner has reached its daily limit of bytes"
    case .queueFull: "the queue is full"
    case .recordsFull: "the limit of job records is reached"
    case .tooManyBatches: "the owner has reached its limit of unfinished batches"
    case .tooManyMessages: "the owner has reached its limit of waiting webhook messages"
    case .keyReused: "another request has used the idempotency key"
    case .invalidLocalNames: "a path leads out of the folder of local images"
    case .versionDiffers: "the job has another version"
    case .imageGone: "the image is no longer stored"
    case .renderingsFull: "the queue of variants is full"
    case .unrenderable(let error): "the variant cannot be made: \(error.code.rawValue)"
    case .abandoned: "the client closed the connection"
    case .starting: "the service is starting"
    case .draining: "the service is stopping"
    case .store(let error): error.description
    }
  }
}

extension JobFailure: CustomStringConvertible {
  package var description: String {
    switch self {
    case .fetch(let error): error.description
    case .codec(let error): error.description
    case .integrityMismatch(_, let actual): "the SHA-256 of the image is \(actual.hex)"
    case .notCached: "the cache has no response"
    case .localNotFound(let name): "the local image \(name) does not exist"
    case .delivery(let error): error.description
    case .storageFull: "no space is left"
    case .internal: "internal error"
    }
  }
}

extension FetchError: CustomStringConvertible {
  package var description: String {
    switch self {
    case .blocked(let target, let reason): "\(target): \(reason)"
    case .dnsFailure(let host, let detail), .connectFailure(let host, let detail),
      .noResponse(let host, let detail), .tlsFailure(let host, let detail):
      "\(host): \(detail)"
    case .badHost(let host): "\(host): not a valid host name"
    case .unreachable(let origin, let failures, let seconds):
      "\(origin): not reached \(failures) times in a row, paused for \(seconds) s"
    case .timeout(let seconds): "timed out after \(seconds) s"
    case .stalled(let seconds): "no bytes received for \(seconds) s"
    case .tooManyRedirects(let limit): "more than \(limit) redirects"
    case .badRedirect(let status, let location):
      location.map { "invalid redirect \(status) to \($0)" } ?? "redirect \(status) to no location"
    case .originStatus(let status, let retryAfter):
      "status \(status)" + (retryAfter.map { ", Retry-After \($0) s" } ?? "")
    case .noData: "the body is empty"
    case .tooLarge(let limit): "more than \(limit) bytes"
    case .headerTooLarge(.lines(let limit)): "the header section has more than \(limit) lines"
    case .headerTooLarge(.bytes(let limit)): "the header section has more than \(limit) bytes"
    case .truncated(let received, let expected):
      "the body ended after \(received) bytes" + (expected.map { " of \($0)" } ?? "")
    case .unsupportedCoding(let coding): "unsupported content coding \(coding)"
    case .brokenCoding(let coding): "the \(coding) stream is corrupt or incomplete"
    case .cancelled: "the transfer was cancelled"
    }
  }
}

extension BlockReason: CustomStringConvertible {
  package var description: String {
    switch self {
    case .address(let address, let name): "\(address) is in the blocked network \(name)"
    case .host: "the host is not allowed"
    case .port(let port): "port \(port) is not allowed"
    case .scheme(let scheme): "the scheme \(scheme) is not allowed"
    }
  }
}

extension CodecError: CustomStringConvertible {
  package var description: String {
    switch self {
    case .unsupportedFormat(let name): name.map { "unsupported format \($0)" } ?? "unknown format"
    case .tooManyPixels(let width, let height, let limit):
      "\(width) x \(height) are more than \(limit) pixels"
    case .dimensionTooLarge(let width, let height, let limit):
      "\(width) x \(height): a side has more than \(limit) pixels"
    case .tooManyScans(let limit): "more than \(limit) scans"
    case .tooManyFrames(let limit): "more than \(limit) frames, or too many pixels in all frames"
    case .tooMuchMemory(let bytes, let limit): "\(bytes) bytes of memory needed, more than \(limit)"
    case .cutShort: "the image ends before its last pixel"
    case .broken(let format, let detail): "broken \(format.rawValue): \(detail)"
    case .crashed(let how): "the decoder process failed: \(how)"
    case .noDecoder: "no decoder process is available"
    }
  }
}

extension DeliveryError: CustomStringConvertible {
  package var description: String {
    switch self {
    case .refused(let to, let status, let code):
      "\(to) responded with \(status)" + (code.map { " \($0)" } ?? "")
    case .unreachable(let to, let error): "\(to): \(error)"
    case .differs(let to): "\(to) stored different bytes than were sent"
    case .unknown(let to): "the destination \(to) does not exist"
    case .noCredentials(let to): "the credentials for \(to) are missing"
    case .longKey(let to): "the key for \(to) is too long"
    case .unreadable(let to): "the image for \(to) cannot be read"
    case .cancelled: "the delivery was cancelled"
    }
  }
}

// Descriptions, for the operator's log, of errors that no job fails with.

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

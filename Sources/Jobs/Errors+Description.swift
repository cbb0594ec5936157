// What happened, in words for the operator's log. Clients are told other words, by `API`.

extension StoreError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .full: "no room is left"
    case .unavailable(let detail): detail
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
    case .unknownJob: "there is no such job"
    case .queueFull: "the queue is full"
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

/// Why a fetch failed.
package enum FetchError: Error, Sendable, Equatable, Codable {
  /// The built-in or configured network rules forbid the address. Nothing was sent.
  case blocked(target: String, BlockReason)
  /// The name has no address, or name resolution timed out.
  case dnsFailure(host: String, detail: String)
  /// The host is neither an address nor a valid name: it has an empty or too long label, or invalid
  /// characters.
  case badHost(String)
  /// No TCP connection.
  case connectFailure(host: String, detail: String)
  /// A connection, but no valid HTTP response. The host is reachable.
  case noResponse(host: String, detail: String)
  /// The origin is paused because `failures` requests in a row could not reach it. Nothing was sent. The next
  /// attempt is possible after `seconds`.
  case unreachable(origin: String, failures: Int, seconds: Double)
  /// No trusted TLS session.
  case tlsFailure(host: String, detail: String)
  /// The transfer exceeded its time limit.
  case timeout(seconds: Double)
  /// No byte arrived for this time.
  case stalled(seconds: Double)
  /// More redirects than `limit`.
  case tooManyRedirects(limit: Int)
  /// A redirect without a usable `Location`.
  case badRedirect(status: Int, location: String?)
  /// A final status without an image. `retryAfter` is the `Retry-After` field in seconds (RFC 9110 section
  /// 10.2.3).
  case originStatus(Int, retryAfter: Double?)
  /// The body is empty.
  case noData
  /// The declared or actual size exceeds `limit` bytes.
  case tooLarge(limit: Int)
  /// The header section, including interim responses, exceeds a limit.
  case headerTooLarge(HeaderLimit)
  /// The body ended early. `expected` is the declared size in bytes, if known.
  case truncated(received: Int, expected: Int?)
  /// The body has an unsupported content coding and is no image as it is. Thrown by the caller of the
  /// fetcher: see ``FetchedResponse/unsupportedCoding``.
  case unsupportedCoding(String)
  /// The body violates its declared content coding, or ends within the coded stream.
  case brokenCoding(String)
  /// The calling task was cancelled.
  case cancelled
}

/// A limit of a response's header section.
package enum HeaderLimit: Sendable, Equatable, Codable {
  /// The number of lines: the status line and one per field.
  case lines(Int)
  /// The total bytes of all lines.
  case bytes(Int)
}

/// Why network rules forbid a request.
package enum BlockReason: Sendable, Equatable, Codable {
  /// The address belongs to a blocked network. `name` comes from the IANA registry or the configuration
  /// ("Loopback", "Private-Use", "deny_networks").
  case address(String, name: String)
  /// The host name is denied or not allowed.
  case host
  /// The port is not allowed.
  case port(Int)
  /// The scheme is not allowed.
  case scheme(String)
}

extension FetchError: ExplainedError {
  package var explanation: Explanation {
    switch self {
    case .blocked(let target, let reason):
      let texts = reason.texts("fetch", "from")
      return Explanation(
        .blockedAddress, "\(target) \(texts.detail)", log: "\(target): \(texts.log)",
        reason: texts.word)
    case .dnsFailure(let host, let detail):
      return Explanation(.dnsFailure, "\(host): \(detail).")
    case .badHost(let host):
      return Explanation(
        .dnsFailure, "\(host) is not a valid host name.", isRetryable: false)
    case .connectFailure(let host, let detail), .noResponse(let host, let detail):
      return Explanation(.connectFailure, "\(host): \(detail).")
    case .unreachable(let origin, let failures, let seconds):
      let requests = failures == 1 ? "1 request" : "\(failures) requests in a row"
      let pause = Int(max(0, min(seconds, 86_400)).rounded(.up))
      return Explanation(
        .connectFailure,
        "\(origin) failed \(requests) and is paused. The next attempt is in \(pause) s.")
    case .tlsFailure(let host, let detail):
      return Explanation(.tlsFailure, "\(host): \(detail).")
    case .timeout(let seconds):
      return Explanation(
        .timeout, "The origin did not send the whole image within \(seconds.plain) s.",
        log: "timed out after \(seconds.plain) s")
    case .stalled(let seconds):
      return Explanation(
        .stalled, "The origin sent no bytes for \(seconds.plain) s.",
        log: "no bytes received for \(seconds.plain) s")
    case .tooManyRedirects(let limit):
      return Explanation(.tooManyRedirects, "The origin redirects more than \(limit) times.")
    case .badRedirect(let status, let location):
      let how =
        location == nil
        ? "without a target" : "to a URL that is not http or https, or has a user name"
      return Explanation(
        .originStatus, "The origin redirects (\(status)) \(how).",
        log: "invalid redirect \(status) to \(location ?? "no location")", originStatus: status)
    case .originStatus(let status, let retryAfter):
      return Explanation(
        .originStatus, "The origin responded with \(status).",
        log: "status \(status)" + (retryAfter.map { ", Retry-After \($0) s" } ?? ""),
        originStatus: status, isRetryable: TransientStatus.contains(status))
    case .noData: return Explanation(.noData, "The image has no bytes.")
    case .tooLarge(let limit):
      return Explanation(.tooLarge, "The image has more than \(limit) bytes.")
    case .headerTooLarge(.lines(let limit)):
      return Explanation(
        .tooLarge, "The response's header section has more than \(limit) lines of fields.")
    case .headerTooLarge(.bytes(let limit)):
      return Explanation(
        .tooLarge, "The response's header section has more than \(limit) bytes.")
    case .truncated(let received, let expected):
      let all = expected.map { " of \($0)" } ?? ""
      return Explanation(
        .truncated, "The transfer ended early, after \(received)\(all) bytes.")
    case .unsupportedCoding(let coding):
      return Explanation(
        .unsupportedFormat, "The content coding \(coding) is not supported.")
    case .brokenCoding(let coding):
      return Explanation(.decodeFailed, "The content is not valid \(coding).")
    // Never shown, because a cancelled load does not fail its job.
    case .cancelled: return Explanation(.internal, "The transfer was cancelled.")
    }
  }
}

extension BlockReason {
  /// The reason in the API's spelling, for clients and for the log. Only the log has the address: clients must not
  /// learn how names resolve inside the network.
  /// - Parameters:
  ///   - verb: The refused action: `fetch` or `send`.
  ///   - preposition: `from` or `to`.
  package func texts(
    _ verb: String, _ preposition: String
  ) -> (word: String, detail: String, log: String) {
    let may = "may not \(verb) \(preposition)."
    return switch self {
    case .address(let address, let name):
      (
        "address", "has an address that this service \(may)",
        "\(address) is in the blocked network \(name)"
      )
    case .host: ("host", "is a host that this service \(may)", "the host is not allowed")
    case .port(let port):
      ("port", "uses port \(port), which this service \(may)", "port \(port) is not allowed")
    case .scheme(let scheme):
      (
        "scheme", "uses \(scheme.shortened), which this service may not \(verb) with.",
        "the scheme \(scheme) is not allowed"
      )
    }
  }
}

extension Double {
  /// The number without a fraction if it is whole.
  fileprivate var plain: String { Int(exactly: self)?.description ?? description }
}

extension FetchError {
  /// The same error of a request to a destination, with its name in place of its endpoint, which clients may not see.
  package func naming(_ name: String) -> FetchError {
    switch self {
    case .blocked(_, let reason): .blocked(target: name, reason)
    case .dnsFailure: .dnsFailure(host: name, detail: "no address")
    case .badHost: .badHost(name)
    case .connectFailure: .connectFailure(host: name, detail: "no connection")
    case .noResponse: .noResponse(host: name, detail: "no response")
    case .tlsFailure: .tlsFailure(host: name, detail: "no trusted TLS session")
    case .unreachable(_, let failures, let seconds):
      .unreachable(origin: name, failures: failures, seconds: seconds)
    case .timeout, .stalled, .tooManyRedirects, .badRedirect, .originStatus, .noData, .tooLarge,
      .headerTooLarge,
      .truncated, .unsupportedCoding, .brokenCoding, .cancelled:
      self
    }
  }
}

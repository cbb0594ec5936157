internal import CCurl
internal import Jobs
internal import Logging

/// Converts the result of a transfer to the service's own types.
extension Transfer {
  func makeHead() -> ResponseHead {
    ResponseHead(
      status: headerSection.status, fields: headerSection.fields,
      contentLength: headerSection.length.bytes, timings: timings())
  }

  /// Returns the error for libcurl's result code, or nil if the response is complete.
  func error(for code: CURLcode) -> FetchError? {
    if let failure { return failure }
    let host = plan.route.host
    switch code {
    case CURLE_SSL_CONNECT_ERROR where brokeOff:
      return .connectFailure(host: host, detail: words(for: code))
    case CURLE_OK:
      return hasHead ? nil : .noResponse(host: host, detail: "no response")
    case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM,
      CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR,
      CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_PINNEDPUBKEYNOTMATCH, CURLE_SSL_CRL_BADFILE:
      return .tlsFailure(host: host, detail: words(for: code))
    case CURLE_OPERATION_TIMEDOUT where !isConnected:
      return connectTimedOut
    // A header line is longer than libcurl allows. libcurl 8.6 and later return CURLE_TOO_LARGE (100).
    case CURLE_OUT_OF_MEMORY where isConnected && !hasHead, CURLcode(100) where !hasHead:
      return .headerTooLarge(.bytes(settings.maxHeaderBytes))
    // Content codings are not decoded here, so the error is about a transfer coding. Newer versions of
    // libcurl refuse these.
    case CURLE_BAD_CONTENT_ENCODING where !hasHead: return unaskedCoding
    default:
      guard hasHead else {
        let words = words(for: code)
        return isConnected
          ? .noResponse(host: host, detail: words) : .connectFailure(host: host, detail: words)
      }
      return .truncated(received: exchange.received, expected: headerSection.length.bytes)
    }
  }

  var unaskedCoding: FetchError {
    .noResponse(host: plan.route.host, detail: "an unrequested transfer coding")
  }

  /// Whether the connection broke during the TLS handshake without a TLS alert. That does not prove that the
  /// certificate is bad.
  private var brokeOff: Bool {
    ["Recv failure", "Send failure", "SSL_ERROR_SYSCALL", "Connection reset", "unexpected eof"]
      .contains { detail.contains($0) }
  }

  /// Returns the error detail for the client. For a transfer through the proxy, libcurl's own message may
  /// name the proxy, so it is only logged.
  private func words(for code: CURLcode) -> String {
    let general = String(cString: curl_easy_strerror(code))
    guard plan.route.proxy != nil else { return detail.isEmpty ? general : detail }
    Logger(label: "imagefetch.fetch").debug(
      "transfer through the proxy failed",
      metadata: ["host": "\(plan.route.host)", "why": "\(detail.isEmpty ? general : detail)"])
    var status = 0
    CCurl_getLong(easy, CURLINFO_HTTP_CONNECTCODE, &status)
    guard status < 300 else { return ProxyRoute.refused(status) }
    switch code {
    case CURLE_COULDNT_CONNECT, CURLE_COULDNT_RESOLVE_PROXY: return ProxyRoute.unreachable
    default: return general
    }
  }

  private func timings() -> TransferTimings {
    var timings = TransferTimings()
    timings.firstByte = plan.started.duration(to: firstByte ?? .now)
    var opened = 0
    CCurl_getLong(easy, CURLINFO_NUM_CONNECTS, &opened)
    guard opened > 0 else { return timings }
    timings.dns = plan.route.nameTime
    let (named, connected) = (time(CURLINFO_NAMELOOKUP_TIME_T), time(CURLINFO_CONNECT_TIME_T))
    let secured = time(CURLINFO_APPCONNECT_TIME_T)
    timings.connect = .microseconds(max(0, connected - named))
    if secured > 0 { timings.tls = .microseconds(max(0, secured - connected)) }
    return timings
  }

  private func time(_ info: CURLINFO) -> Int {
    var microseconds: curl_off_t = 0
    CCurl_getOffset(easy, info, &microseconds)
    return microseconds
  }
}

extension HeaderSection {
  /// Whether the response has a transfer coding that was not requested (RFC 9112 section 7.4). The service
  /// does not decode it.
  var hasUnaskedCoding: Bool {
    values(of: "transfer-encoding").contains { value in
      value.lowercased().split { ", \t".contains($0) }.contains {
        $0 != "chunked" && $0 != "identity"
      }
    }
  }
}

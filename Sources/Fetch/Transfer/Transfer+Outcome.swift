internal import CCurl
internal import Jobs
internal import Logging

/// What a transfer brought, in our words.
extension Transfer {
  func makeHead() -> ResponseHead {
    ResponseHead(
      status: headerSection.status, fields: headerSection.fields,
      contentLength: headerSection.length.bytes, timings: timings())
  }

  /// Nil when the response is there whole.
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
    // A header line longer than libcurl keeps; CURLE_TOO_LARGE (100) from libcurl 8.6 on.
    case CURLE_OUT_OF_MEMORY where isConnected && !hasHead, CURLcode(100) where !hasHead:
      return .headerTooLarge(.bytes(settings.maxHeaderBytes))
    // Contents stay coded, so this is about the transfer: newer versions of libcurl refuse its codings themselves.
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
    .noResponse(host: plan.route.host, detail: "a transfer coding that was not asked for")
  }

  /// Whether the connection ended within the handshake, with nothing said of why: that is no verdict on a certificate.
  private var brokeOff: Bool {
    ["Recv failure", "Send failure", "SSL_ERROR_SYSCALL", "Connection reset", "unexpected eof"]
      .contains { detail.contains($0) }
  }

  /// What went wrong, for the client. libcurl's details of a transfer through the proxy may name it,
  /// so only the log gets them.
  private func words(for code: CURLcode) -> String {
    let general = String(cString: curl_easy_strerror(code))
    guard plan.route.proxy != nil else { return detail.isEmpty ? general : detail }
    Logger(label: "imagefetch.fetch").debug(
      "failed through the proxy",
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
  /// Whether it has a transfer coding that was not asked for (RFC 9112 section 7.4), which nobody undoes here.
  var hasUnaskedCoding: Bool {
    values(of: "transfer-encoding").contains { value in
      value.lowercased().split { ", \t".contains($0) }.contains {
        $0 != "chunked" && $0 != "identity"
      }
    }
  }
}

internal import HTTPTypes
internal import Jobs

extension FailureCode {
  /// Status, title and advice of the failure. The status shows whose fault it is: the client's (4xx), the origin's
  /// (502, 504), this service's (500, 503). A failed job is still a 200; the status is used only for the failures that
  /// a request can have too.
  var row: ProblemCode.Row {
    typealias Row = ProblemCode.Row
    return switch self {
    case .blockedAddress:
      Row(
        .unprocessableContent, "The URL is blocked by the configuration",
        """
        The URL, or a redirect, leads to an address, host, port or scheme that the configuration of this service \
        forbids. reason says which. The operator can allow it with fetch.allow_networks, fetch.allow_hosts, \
        fetch.allow_ports or fetch.allow_schemes. Private networks are blocked on purpose: attackers use such URLs \
        to reach services inside a network.
        """)
    case .dnsFailure:
      Row(
        .badGateway, "The origin's name could not be resolved",
        """
        Check the host name in the URL. If it is right, the origin's name servers or the resolver of this service \
        did not answer. Try again later.
        """)
    case .connectFailure:
      Row(
        .badGateway, "The origin could not be reached",
        """
        The origin refused the connection, did not answer, or did not answer with HTTP. Check the host and the port. \
        If they are right, only the origin's operator can fix it. After several such failures the service pauses \
        requests to the origin for up to a minute.
        """)
    case .tlsFailure:
      Row(
        .badGateway, "The TLS connection to the origin failed",
        """
        The origin's certificate has expired, is for another name, or was issued by an authority that this service \
        does not trust. Only the origin's operator can fix it.
        """)
    case .timeout:
      Row(
        .gatewayTimeout, "The transfer took too long",
        """
        The transfer took longer than fetch.timeout or the job's own timeout. Try again, set a longer timeout, or \
        request a smaller image.
        """)
    case .stalled:
      Row(
        .gatewayTimeout, "The origin stopped sending",
        """
        The origin sent no bytes for fetch.stall_timeout. Try again later: the service resumes the transfer where it \
        stopped, if the origin allows that.
        """)
    case .tooManyRedirects:
      Row(
        .badGateway, "Too many redirects",
        """
        The origin redirects more often than fetch.max_redirects allows. Check the URL for a redirect loop, or \
        submit the URL that the redirects should lead to.
        """)
    case .originStatus:
      Row(
        .badGateway, "The origin did not respond with status 200",
        """
        origin_status has the origin's status. 404 and 410: the URL is wrong or outdated. 401 and 403: the origin \
        requires credentials, which the job can send in headers, or rejects programs. 429 and most 5xx are \
        temporary, and the service tries again.
        """)
    case .noData:
      Row(
        .badGateway, "The image has no data",
        """
        The origin responded with an empty body, or the upload was empty. Only the origin's operator can fix an \
        empty response. Send an empty upload again.
        """)
    case .tooLarge:
      Row(
        .badGateway, "The response is too large",
        """
        The image has more bytes than fetch.max_bytes or the job's max_bytes allow, or the response's header section \
        has more than 264 lines or 65536 bytes. detail says which. The operator can raise fetch.max_bytes. The \
        limits of the header section are fixed.
        """)
    case .tooManyPixels:
      Row(
        .badGateway, "The image is too large to decode",
        """
        The image exceeds a limit. reason says which: pixels (decode.max_pixels), dimensions (decode.max_dimension), \
        frames (decode.max_frames), scans (decode.max_scans) or memory (decode.max_memory). The operator can raise \
        it. The limits protect the service from images that are made to exhaust it.
        """)
    case .unsupportedFormat:
      Row(
        .badGateway, "The image format is not supported",
        """
        Supported are \(ImageFormat.allCases.phrase), as far as decode.formats lists them. \
        \(ImageFormat.needingIsolation.phrase) also need decoder processes (decode.isolation). The usual cause is a \
        web page in place of the image: some origins send one to programs.
        """)
    case .truncated:
      Row(
        .badGateway, "The transfer ended early",
        """
        The connection ended before the whole image had arrived. Try again: the service resumes the transfer where \
        it stopped, if the origin allows that.
        """)
    case .decodeFailed:
      Row(
        .badGateway, "The image is corrupt",
        """
        The image breaks the rules of its format, or its content coding is broken. Other programs may show a part of \
        it. Only an intact copy of the file helps.
        """)
    case .decoderCrashed:
      Row(
        .badGateway, "The image crashed its decoder",
        """
        The process that decoded the image crashed, took too long, or tried something that is not allowed. The file \
        is corrupt, or it is an attack. Other jobs are not affected. The service does not try again automatically; \
        the operator finds the image's digest in the log.
        """)
    case .integrityMismatch:
      Row(
        .unprocessableContent, "The image does not match integrity",
        """
        The SHA-256 of the bytes differs from the job's integrity. The file has changed, or the digest belongs to \
        another file.
        """)
    case .notCached:
      Row(
        .unprocessableContent, "The image is not in the cache",
        "Submit the job without the cache mode only-if-cached.")
    case .localNotFound:
      Row(
        .unprocessableContent, "There is no such local image",
        "Check the name, or ask the operator to put the file into the folder sources.local_root.")
    case .deliveryFailure:
      Row(
        .badGateway, "The image could not be delivered",
        """
        The image is stored, but the upload to a destination in deliver failed. detail names the destination and its \
        response. POST /jobs/{id}/fetch tries again, without fetching the image if it is still stored. A presigned \
        URL may have expired, or be signed for other header fields.
        """)
    case .storageFull:
      Row(
        .serviceUnavailable, "The service has no storage space left",
        """
        Try again later. The operator can free disk space, or raise storage.max_bytes or storage.max_record_bytes; \
        the service then continues without a restart.
        """)
    case .internal:
      Row(
        .internalServerError, "The service had an internal error",
        """
        The fault is in this service, not in the request. The operator finds the cause in the log, under the \
        request_id of the response or the id of the job.
        """)
    }
  }
}

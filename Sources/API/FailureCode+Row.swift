internal import HTTPTypes
internal import Jobs

extension FailureCode {
  /// How it is told. A job's failure is never an answer by itself; its status tells whose fault it is: the client's
  /// (4xx), the origin's (502, 504), ours (500, 503). Some can also befall a request.
  var row: ProblemCode.Row {
    typealias Row = ProblemCode.Row
    return switch self {
    case .blockedAddress:
      Row(
        .unprocessableContent, "The URL leads where this service does not go",
        """
        The URL, or a redirect on its way, leads to a private or special network, or to a host, port or scheme \
        that whoever runs the service has ruled out; reason says which of them. They can allow it: \
        fetch.allow_networks, fetch.allow_hosts, fetch.allow_ports, fetch.allow_schemes. What is blocked by \
        its address is so on purpose: such requests are how services inside a network are attacked.
        """)
    case .dnsFailure:
      Row(
        .badGateway, "The origin's name could not be resolved",
        """
        Check the host's name in the URL. Where it is right, its name servers, or the resolver of this \
        service, did not answer: try again later.
        """)
    case .connectFailure:
      Row(
        .badGateway, "The origin could not be reached",
        """
        Nobody answered at the origin, or nobody who speaks HTTP. Check host and port; where they are right \
        its operator can mend it. After several such failures the service leaves an origin alone for up to a \
        minute.
        """)
    case .tlsFailure:
      Row(
        .badGateway, "The origin could not be trusted",
        """
        The origin's certificate has expired, is for another name, or comes from nobody whom this service \
        trusts. Its operator can mend it.
        """)
    case .timeout:
      Row(
        .gatewayTimeout, "The transfer took too long",
        """
        The whole transfer took longer than fetch.timeout or the job's own timeout. Try again, allow more \
        time, or ask for a smaller image.
        """)
    case .stalled:
      Row(
        .gatewayTimeout, "The origin stopped sending",
        """
        The origin stopped sending in the middle, for fetch.stall_timeout. Try again later: the service goes \
        on from the bytes it has.
        """)
    case .tooManyRedirects:
      Row(
        .badGateway, "Too many redirects",
        """
        Follow the URL by hand to see where it goes in a circle, and submit where it should end. The limit is \
        fetch.max_redirects.
        """)
    case .originStatus:
      Row(
        .badGateway, "The origin answered with another status than 200",
        """
        origin_status has what the origin said. 404 and 410: the URL is wrong or old. 401 and 403: the origin \
        wants a credential, which headers can carry, or keeps programs out. 429 and 5xx pass by themselves, \
        and are tried again.
        """)
    case .noData:
      Row(
        .badGateway, "The origin sent no data",
        "The origin answered with an empty body: its operator can mend it. An empty upload ends so as well."
      )
    case .tooLarge:
      Row(
        .badGateway, "The response is too large",
        """
        The image has more bytes than fetch.max_bytes or the job's own max_bytes: the operator can allow more. Or \
        the response's header section has more than 264 lines or 65536 bytes, which no setting changes: detail says \
        which limit it was.
        """)
    case .tooManyPixels:
      Row(
        .badGateway, "The image is too large to decode",
        """
        reason says which limit it was: pixels (decode.max_pixels), dimensions (decode.max_dimension), frames \
        (decode.max_frames), scans (decode.max_scans) or memory (decode.max_memory). Whoever runs the service \
        can allow more; such files are also how services are attacked.
        """)
    case .unsupportedFormat:
      Row(
        .badGateway, "The bytes are no image of a supported format",
        """
        The bytes are no JPEG, PNG, WebP, GIF, AVIF, JPEG XL or HEIC image, or of one of these that \
        decode.formats leaves out, or JPEG XL or HEIC where decoders are not kept apart \
        (decode.isolation). A web page in place of the image is the usual reason: some origins send \
        one to programs.
        """)
    case .truncated:
      Row(
        .badGateway, "The transfer ended early",
        "The connection broke off in the middle. Try again: the service goes on from the bytes it has."
      )
    case .decodeFailed:
      Row(
        .badGateway, "The image is broken",
        """
        The file is damaged where it comes from: other programs may show a part of it. A sound copy helps, \
        nothing else.
        """)
    case .decoderCrashed:
      Row(
        .badGateway, "The image crashed its decoder",
        """
        The process that decoded the image ended, took too long, or did what decoding needs not: the file is \
        broken in a way that a codec does not survive, or meant as an attack. Nothing else was touched. It is \
        not tried again by itself; whoever runs the service finds the image's digest in the log.
        """)
    case .integrityMismatch:
      Row(
        .unprocessableContent, "The bytes are not the expected ones",
        """
        The bytes are not those that the job's integrity demands: the file has changed, or the digest is of \
        another one.
        """)
    case .notCached:
      Row(
        .unprocessableContent, "The image is not in the cache",
        "Submit the job without the cache mode only-if-cached.")
    case .localNotFound:
      Row(
        .unprocessableContent, "There is no such local image",
        "Check the name, or have the file put into the folder sources.local_root.")
    case .deliveryFailure:
      Row(
        .badGateway, "The image could not be delivered",
        """
        The image is there, but could not be brought to one of the places in deliver, three times. The detail names \
        the place and what it answered. POST /jobs/{id}/fetch tries again, without fetching where the image is kept. A \
        presigned URL may have expired, or been signed for other header fields.
        """)
    case .storageFull:
      Row(
        .serviceUnavailable, "There is no room to keep the image",
        """
        There is no room to keep the image. Whoever runs the service can make some: on the disk, or by a \
        larger storage.max_bytes. It goes on by itself then; try again later.
        """)
    case .internal:
      Row(
        .internalServerError, "Something went wrong in this service",
        """
        The fault is in this service. Its log has more, under the request_id of the answer or the job's id; \
        whoever runs it can look there, and report it.
        """)
    }
  }
}

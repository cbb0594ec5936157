internal import HTTPTypes
internal import Jobs

/// `GET /problems/{code}`: where a problem's `type` leads.
extension ProblemCode {
  /// For people: what it means and what to do.
  var page: WebPage {
    let name = rawValue
    let kind =
      isJobs
      ? "A job's <code>error.code</code>."
      : "The <code>code</code> of an answer with status \(status.code)."
    let html = """
      <!doctype html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta name="viewport" content="width=device-width">
      <title>\(name): \(title)</title>
      <style>
      body { font: 1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }
      @media (prefers-color-scheme: dark) { body { background: #16181d; color: #e8eaee } }
      </style>
      </head>
      <body>
      <p><code>\(name)</code></p>
      <h1>\(title)</h1>
      <p>\(kind) What happened this time stands in its <code>detail</code>.</p>
      <h2>What to do</h2>
      <p>\(advice)</p>
      </body>
      </html>

      """
    return WebPage(
      Array(html.utf8), contentSecurityPolicy: "default-src 'none'; style-src 'unsafe-inline'")
  }

  /// Whether it is why a job failed, and not what is wrong with a request.
  private var isJobs: Bool { FailureCode(rawValue: rawValue) != nil }

  /// What whoever gets it can do about it; plain text without `&` and `<`.
  private var advice: String {
    switch self {
    case .malformedJSON:
      "Send a body that is JSON in UTF-8. The detail names the line and the column where it stops being JSON."
    case .malformedRequest:
      "Send the request as HTTP has it. The detail says which rule it breaks; a client library of its own is seldom at fault, a hand-written one or a proxy often."
    case .missingURL:
      "Name the image's source: the member url, or local for an image of the service's own folder. A form has a part named image."
    case .invalidURL:
      "Send an absolute URL that begins with http:// or https://, has no user name in it, and at most 8,192 bytes. What is not ASCII in its path is percent-encoded."
    case .invalidLocalName:
      "Name a file by its path below the folder sources.local_root, without . and .. parts. Where there is no such folder, the service has no local images."
    case .invalidOption:
      "Mend what the list errors names: each entry has the place (a JSON Pointer, a query parameter or a header field) and says what goes there. Members that are not known are mistakes too, so that no typing error goes unnoticed."
    case .unsupportedMediaType:
      "Set Content-Type to what the body is and what this path takes, which the detail lists, and send it without a Content-Encoding."
    case .bodyTooLarge:
      "Send less at once: a smaller image, or a batch in parts. The limits are server.max_body and api.max_batch."
    case .targetTooLong:
      "Shorten the path and query to 8,192 bytes. POST /jobs takes long URLs in its body."
    case .headerTooLarge: "Send fewer or shorter header fields; long cookies are the usual reason."
    case .unauthorized:
      "Send Authorization: Bearer and a token of this service's. Whoever runs it gives them out (auth.tokens)."
    case .forbidden:
      "The token lacks a scope, the signed URL is not good or has expired, or a web page of another origin asked a service without tokens. The detail says which: ask whoever runs the service for a token with that scope, or sign the URL anew."
    case .notFound:
      "Check the path and the id. A job is there for whoever submitted it, until jobs.retention is over or it is purged; then it has to be submitted again."
    case .methodNotAllowed: "Use one of the methods that the field Allow lists."
    case .imageUnavailable:
      "The job failed or was cancelled: its error, in the member error, says why. POST /jobs/{id}/fetch tries again; placeholder=true gets a picture that stands in for the image."
    case .imageGone:
      "The image was evicted to make room (storage.max_bytes), or its file was harmed. POST /jobs/{id}/fetch fetches it again."
    case .preconditionFailed:
      "Somebody else changed the job meanwhile. Get it again, look whether the change is still wanted, and send it with the new ETag in If-Match."
    case .rangeNotSatisfiable:
      "Ask for a range within the image: the field Content-Range of this answer has its size."
    case .queueFull:
      "Wait for as long as Retry-After says and send the request again. Whoever runs the service can allow more (jobs.max_queued), or find out why the queue grows."
    case .rateLimited:
      "Wait for as long as Retry-After says, and ask less often or over fewer connections: events in place of polling, wait in place of asking again. The limit is auth.rate_limit."
    case .starting: "The service has just been started: send the request again in a second."
    case .draining:
      "The service is being stopped, or replaced by a new one: send the request again in some seconds, or to another instance."
    case .overloaded:
      "Wait for as long as Retry-After says and send the request again. Smaller batches and fewer connections help."
    case .blockedAddress:
      "The URL, or a redirect on its way, leads to a private or special network, or to a host, port or scheme that whoever runs the service has ruled out; reason says which of them. They can allow it: fetch.allow_networks, fetch.allow_hosts, fetch.allow_ports, fetch.allow_schemes. What is blocked by its address is so on purpose: such requests are how services inside a network are attacked."
    case .dnsFailure:
      "Check the host's name in the URL. Where it is right, its name servers, or the resolver of this service, did not answer: try again later."
    case .connectFailure:
      "Nobody answered at the origin, or nobody who speaks HTTP. Check host and port; where they are right its operator can mend it. After several such failures the service leaves an origin alone for up to a minute."
    case .tlsFailure:
      "The origin's certificate has expired, is for another name, or comes from nobody whom this service trusts. Its operator can mend it."
    case .timeout:
      "The whole transfer took longer than fetch.timeout or the job's own timeout. Try again, allow more time, or ask for a smaller image."
    case .stalled:
      "The origin stopped sending in the middle, for fetch.stall_timeout. Try again later: the service goes on from the bytes it has."
    case .tooManyRedirects:
      "Follow the URL by hand to see where it goes in a circle, and submit where it should end. The limit is fetch.max_redirects."
    case .originStatus:
      "origin_status has what the origin said. 404 and 410: the URL is wrong or old. 401 and 403: the origin wants a credential, which headers can carry, or keeps programs out. 429 and 5xx pass by themselves, and are tried again."
    case .noData:
      "The origin answered with an empty body: its operator can mend it. An empty upload ends so as well."
    case .tooLarge:
      "The image has more bytes than fetch.max_bytes or the job's own max_bytes. Whoever runs the service can allow more."
    case .tooManyPixels:
      "reason says which limit it was: pixels (decode.max_pixels), dimensions (decode.max_dimension), frames (decode.max_frames), scans (decode.max_scans) or memory (decode.max_memory). Whoever runs the service can allow more; such files are also how services are attacked."
    case .unsupportedFormat:
      "The bytes are no JPEG, PNG, WebP, GIF or AVIF image, or of one of these that decode.formats leaves out. A web page in place of the image is the usual reason: some origins send one to programs."
    case .truncated:
      "The connection broke off in the middle. Try again: the service goes on from the bytes it has."
    case .decodeFailed:
      "The file is damaged where it comes from: other programs may show a part of it. A sound copy helps, nothing else."
    case .integrityMismatch:
      "The bytes are not those that the job's integrity demands: the file has changed, or the digest is of another one."
    case .notCached: "Submit the job without the cache mode only-if-cached."
    case .localNotFound: "Check the name, or have the file put into the folder sources.local_root."
    case .storageFull:
      "There is no room to keep the image. Whoever runs the service can make some: on the disk, or by a larger storage.max_bytes. It goes on by itself then; try again later."
    case .internal:
      "The fault is in this service. Its log has more, under the request_id of the answer or the job's id; whoever runs it can look there, and report it."
    }
  }
}

public import Jobs
public import Logging

extension Configuration {
  /// `server`: listening and serving.
  public struct Server: Sendable, Equatable {
    /// An IPv4 or IPv6 address, or `localhost`.
    public var host = "127.0.0.1"
    /// The port; 0 for any free one.
    public var port = 8080
    /// Threads that serve connections; 0 for one per core.
    public var threads = 0
    /// Maximum number of open connections.
    public var maxConnections = 10_000
    /// Maximum time from a request's first byte to its last.
    public var requestTimeout: Duration = .seconds(30)
    /// Maximum bytes of a request's body.
    public var maxBody = 32 << 20
    /// How long running jobs may continue when the service stops.
    public var drainTimeout: Duration = .seconds(20)
    /// TLS; both files or none.
    public var tls = TLS()
    /// Networks of proxies whose forwarding header fields name the client.
    public var trustedProxies: [String] = []
    /// Web origins whose pages may read responses (CORS); `*` for all.
    public var corsOrigins: [String] = []

    /// Whether only this machine can connect.
    public var isLoopback: Bool { AddressText.isLoopback(host) }
  }

  /// `server.tls`: files in PEM form.
  public struct TLS: Sendable, Equatable {
    /// The certificate with its chain.
    public var certificate: String?
    /// Its private key.
    public var key: String?
  }

  /// `auth`: tokens and rate limits of clients.
  public struct Auth: Sendable, Equatable {
    /// Whether clients on other machines need no token.
    public var disabled = false
    /// The tokens that are accepted. If empty, no token is needed.
    public var tokens: [Token] = []
    /// A file with more tokens, read again when it changes.
    public var tokensFile: String?
    /// The tokens read from `tokensFile`.
    public internal(set) var filedTokens: [Token] = []
    /// All tokens, including those of the file.
    public var all: [Token] { tokens + filedTokens }
    /// Whether `/metrics` needs no token.
    public var publicMetrics = false
    /// The rate limit for each token, or for each address if there are no tokens.
    public var rateLimit = RateLimit()
  }

  /// One entry of `auth.tokens`.
  public struct Token: Sendable, Equatable {
    /// The permissions of a token.
    public enum Scope: String, Sendable, Equatable, CaseIterable {
      /// The owner's jobs.
      case jobs
      /// The cache, the network state, the metrics and the jobs of all owners.
      case admin
    }

    /// The owner of the token's jobs, in the store and the log.
    public var name: String
    /// The SHA-256 of the token: 32 bytes.
    public var sha256: [UInt8]
    /// The file that the token was read from; nil if it was given as a hash.
    public var file: String?
    public var scopes: Set<Scope>
    /// Maximum number of the owner's queued jobs; nil for no limit except `jobs.max_queued`.
    public var maxQueued: Int?
    /// The highest priority of the owner's jobs; nil for any.
    public var maxPriority: Priority?
    /// Requests per second with this token; nil for `auth.rate_limit`.
    public var rate: Double?
    /// Maximum bytes fetched from origins for the owner in a day (UTC); nil for no limit.
    public var maxBytesPerDay: Int?
    /// Secrets that sign the owner's webhook messages; empty for those of `webhooks`.
    public var webhookSecrets: [WebhookSecret] = []
    /// The files that some of the secrets were read from.
    public var webhookSecretFiles: [String] = []

    /// Creates a token with its hash.
    public init(name: String, sha256: [UInt8], file: String? = nil, scopes: Set<Scope>) {
      (self.name, self.sha256, self.file, self.scopes) = (name, sha256, file, scopes)
    }
  }

  /// `auth.rate_limit`: a token bucket.
  public struct RateLimit: Sendable, Equatable {
    /// Requests added to the bucket per second; 0 for no rate limit.
    public var requestsPerSecond = 0.0
    /// The bucket's capacity in requests; 0 for one second's worth, at least one request.
    public var burst = 0
  }

  /// `api`: limits of single requests.
  public struct API: Sendable, Equatable {
    /// Maximum number of jobs in one array.
    public var maxBatch = 1000
    /// Maximum number of lines in one batch.
    public var maxBatchLines = 1_000_000
    /// Maximum number of unfinished batches of one owner.
    public var maxBatches = 1_000
    /// How long a batch that is not complete may receive no lines before it is closed.
    public var batchIdle: Duration = .seconds(3600)
    /// The longest `wait` that a request may ask for.
    public var maxWait: Duration = .seconds(60)
    /// The minimum time that an `Idempotency-Key` is kept.
    public var idempotencyTTL: Duration = .seconds(86_400)
  }

  /// `view`: `GET /image`.
  public struct View: Sendable, Equatable {
    /// Whether the route exists.
    public var enabled = false
    /// Keys that sign URLs, newest first, at least 16 bytes each. Read from `keysFile` if that is set.
    public var keys: [[UInt8]] = []
    /// A file with one key per line.
    public var keysFile: String?
  }

  /// `webhooks`: messages about finished jobs.
  public struct Webhooks: Sendable, Equatable {
    /// Secrets that sign messages. Each message has a signature for each secret, so that a new secret can be added before
    /// the old one is removed.
    public var secrets: [WebhookSecret] = []
    /// Files with more secrets, one per line.
    public var secretFiles: [String] = []
    /// The secrets read from `secretFiles`.
    var fileSecrets: [WebhookSecret] = []
    /// Whether receivers may have http URLs, not only https.
    public var allowHTTP = false
    /// CIDRs exempt from the built-in block list, for receivers only.
    public var allowNetworks: [String] = []
    /// Names (`example.org`) and subtrees (`*.example.org`) of receivers, in lower case; empty for all.
    public var allowHosts: [String] = []
    /// Ports of receivers; empty for all.
    public var allowPorts: [Int] = [443]
    /// Maximum number of one owner's waiting messages.
    public var maxWaiting = 100_000
    /// Maximum time of one attempt, from the name's lookup to the end of the response's header section.
    public var timeout: Duration = .seconds(15)
    /// How long to wait after each failed attempt. If the attempt after the last wait fails, the message is dropped.
    public var retry: [Duration] = WebhookSchedule.standard.waits
  }

  /// `network`: the initial network state.
  public struct Network: Sendable, Equatable {
    /// Whether low-data images are preferred.
    public var constrained = false
  }

  /// `tracing`: spans of jobs, sent with OTLP.
  public struct Tracing: Sendable, Equatable {
    /// The collector's URL without a path; nil to trace no job.
    public var endpoint: String?
    /// The share of jobs that are traced if the client sent no `traceparent`: 0…1.
    public var sample = 1.0
    /// Whether requests to origins carry the trace context.
    public var propagate = false
  }

  /// `log`: one record per line on standard error.
  public struct Log: Sendable, Equatable {
    /// Records below this level are not written.
    public var level: Logger.Level = .info
    public var format: LogFormat = .auto
  }
}

public import Jobs
public import Logging

extension Configuration {
  /// `server`: listening and serving.
  public struct Server: Sendable, Equatable {
    /// An IPv4 or IPv6 address, or `localhost`.
    public var host = "127.0.0.1"
    /// The port; 0 takes a free one.
    public var port = 8080
    /// Threads that serve connections; 0 is one a core.
    public var threads = 0
    /// Connections at once.
    public var maxConnections = 10_000
    /// From the first byte of a request to its last.
    public var requestTimeout: Duration = .seconds(30)
    /// Bytes of a request's body.
    public var maxBody = 32 << 20
    /// How long running jobs may go on when the service stops.
    public var drainTimeout: Duration = .seconds(20)
    /// TLS; both files or none.
    public var tls = TLS()
    /// Networks of proxies that may say whom they ask for.
    public var trustedProxies: [String] = []
    /// Origins that may read answers in a browser; `*` is any.
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

  /// `auth`: who may ask.
  public struct Auth: Sendable, Equatable {
    /// Open to everyone, said openly.
    public var disabled = false
    /// Who may ask, and for what; empty is everyone.
    public var tokens: [Token] = []
    /// A file with more of them, read again when it changes.
    public var tokensFile: String?
    /// What was read from it.
    public internal(set) var filedTokens: [Token] = []
    /// Those of both.
    public var all: [Token] { tokens + filedTokens }
    /// Whether `/metrics` needs no token.
    public var publicMetrics = false
    /// Requests of one token, or of one address where there are no tokens.
    public var rateLimit = RateLimit()
  }

  /// One entry of `auth.tokens`.
  public struct Token: Sendable, Equatable {
    /// What a token lets do.
    public enum Scope: String, Sendable, Equatable, CaseIterable {
      /// Jobs of its own.
      case jobs
      /// The cache, the network, the metrics and everyone's jobs.
      case admin
    }

    /// Names the owner of jobs, in the store and the log.
    public var name: String
    /// The SHA-256 of the token: 32 bytes.
    public var sha256: [UInt8]
    /// The file that the token was read from, where it was.
    public var file: String?
    /// What it lets do.
    public var scopes: Set<Scope>
    /// Its owner's jobs in the queue at once; nil: as many as there may be.
    public var maxQueued: Int?
    /// The highest priority of its owner's jobs; nil: any.
    public var maxPriority: Priority?
    /// Requests a second of its holder; nil: `auth.rate_limit`.
    public var rate: Double?
    /// Bytes that come from origins for its owner in a day, by UTC; nil: as many as there are.
    public var maxBytesPerDay: Int?
    /// What messages to its owner are signed with; empty: those of `webhooks`.
    public var webhookSecrets: [WebhookSecret] = []
    /// The files that some of them were read from.
    public var webhookSecretFiles: [String] = []

    /// A token known by its hash.
    public init(name: String, sha256: [UInt8], file: String? = nil, scopes: Set<Scope>) {
      (self.name, self.sha256, self.file, self.scopes) = (name, sha256, file, scopes)
    }
  }

  /// `auth.rate_limit`: a token bucket.
  public struct RateLimit: Sendable, Equatable {
    /// What refills it; 0 is no limit.
    public var requestsPerSecond = 0.0
    /// What it holds; 0 is one second's worth, one at least.
    public var burst = 0
  }

  /// `api`: what one request may ask for.
  public struct API: Sendable, Equatable {
    /// Jobs in one array.
    public var maxBatch = 1000
    /// Lines of one list.
    public var maxBatchLines = 1_000_000
    /// Lists of one owner that are not over.
    public var maxBatches = 1_000
    /// How long a list may be left that is not at its end.
    public var batchIdle: Duration = .seconds(3600)
    /// The longest `wait`.
    public var maxWait: Duration = .seconds(60)
    /// How long an `Idempotency-Key` is kept, at least.
    public var idempotencyTTL: Duration = .seconds(86_400)
  }

  /// `view`: `GET /image`.
  public struct View: Sendable, Equatable {
    /// Whether it is there.
    public var enabled = false
    /// Keys of signatures, newest first: 16 bytes or more each. Read from `keysFile` where given.
    public var keys: [[UInt8]] = []
    /// A file with one key a line.
    public var keysFile: String?
  }

  /// `webhooks`: telling others of the ends of jobs.
  public struct Webhooks: Sendable, Equatable {
    /// What messages are signed with, all of them: a new one before the old one is taken out.
    public var secrets: [WebhookSecret] = []
    /// Files with one or more such secrets, a line each.
    public var secretFiles: [String] = []
    /// What those files hold.
    var fileSecrets: [WebhookSecret] = []
    /// Whether http URLs are taken beside https ones.
    public var allowHTTP = false
    /// CIDRs taken out of the built-in block list, for receivers alone.
    public var allowNetworks: [String] = []
    /// Names (`example.org`) and subtrees (`*.example.org`) of receivers, lower case; empty is all.
    public var allowHosts: [String] = []
    /// Ports of receivers; empty is all.
    public var allowPorts: [Int] = [443]
    /// Messages that wait for one owner's receivers.
    public var maxWaiting = 100_000
    /// For a try: from the name's lookup to the answer's header section.
    public var timeout: Duration = .seconds(15)
    /// How long to wait after each try that was in vain; after the last one the message is given up.
    public var retry: [Duration] = WebhookSchedule.standard.waits
  }

  /// `network`: what the service believes of it when it starts.
  public struct Network: Sendable, Equatable {
    /// Whether low-data images are to be preferred.
    public var constrained = false
  }

  /// `log`: one record a line on standard error.
  public struct Log: Sendable, Equatable {
    /// The least that is told.
    public var level: Logger.Level = .info
    /// How it is told.
    public var format: LogFormat = .auto
  }
}

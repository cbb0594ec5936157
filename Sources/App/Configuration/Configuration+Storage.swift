extension Configuration {
  /// `cache`: the HTTP cache (RFC 9111).
  public struct Cache: Sendable, Equatable {
    /// Whether the cache is used.
    public var enabled = true
    /// Maximum bytes of cached images in memory.
    public var memory = 100_000_000
    /// Maximum bytes of cached images on disk.
    public var disk = 1_000_000_000
    /// Whether owners share cached responses.
    public var shared = true
    /// How long a response without freshness information is fresh. With zero, the heuristic of RFC 9111 section 4.2.2 is
    /// used.
    public var defaultTTL: Duration = .seconds(86_400)
  }

  /// `storage`: where jobs and images are stored.
  public struct Storage: Sendable, Equatable {
    /// The folder; created if it does not exist.
    public var path = "./data"
    /// The URL of a PostgreSQL database for jobs; nil for SQLite in the folder.
    public var jobs: String?
    /// A file with the database password; nil to let libpq find one.
    public var jobsPasswordFile: String?
    /// `s3://bucket/prefix` for images; nil for files in the folder.
    public var images: String?
    /// How the bucket of `images` is reached.
    public var s3 = ObjectStore()
    /// Maximum bytes of local copies of the bucket's images.
    public var localCache = 1_000_000_000
    /// Maximum bytes of all stored images.
    public var maxBytes = 10_000_000_000
    /// Maximum bytes of the records of all jobs, queued or finished. One owner may use half of it while other owners have
    /// jobs.
    public var maxRecordBytes = 4_000_000_000
    /// Bytes of disk space reserved for deletions, for finishing jobs and for the start; 0 for none.
    public var reserve = 64_000_000
    /// Maximum bytes of partial transfers kept for resuming.
    public var partials = 500_000_000
  }

  /// `storage.s3`: the S3-compatible object store of `storage.images`.
  public struct ObjectStore: Sendable, Equatable {
    /// The URL of the object store, without a path; nil for AWS in `region`.
    public var endpoint: String?
    /// The region that requests are signed for. If the key is not set, `AWS_REGION` is used.
    public var region = "us-east-1"
    /// Whether the bucket's name is in the URL's path, otherwise in the host name.
    public var isPathStyle = true
    /// An INI file in the format of AWS's tools, read again when it changes. Nil to use `AWS_ACCESS_KEY_ID` and the
    /// related variables.
    public var credentialsFile: String?
  }

  /// An entry of `destinations`: a bucket of an S3-compatible object store that jobs may deliver images to.
  public struct Destination: Sendable, Equatable {
    /// The name that jobs use: 1…64 of `A-Z a-z 0-9 . _ -`.
    public var name: String
    /// The URL of the object store, without a path; nil for AWS in `region`.
    public var endpoint: String?
    /// The region that requests are signed for.
    public var region = "us-east-1"
    /// The bucket's name.
    public var bucket: String
    /// The prefix of all object keys.
    public var prefix = ""
    /// Whether the bucket's name is in the URL's path, otherwise in the host name.
    public var isPathStyle = true
    /// Files with the access key; nil to use `AWS_ACCESS_KEY_ID` and the related variables.
    public var keyFiles: KeyFiles?
    /// The names of the tokens whose jobs may use the destination; nil for all.
    public var owners: [String]?
  }

  /// The files of an access key.
  public struct KeyFiles: Sendable, Equatable {
    /// Path of the file that holds the access key ID.
    public var access: String
    /// Path of the file that holds the secret access key.
    public var secret: String
  }

  /// `sources`: sources of images other than URLs.
  public struct Sources: Sendable, Equatable {
    /// The folder of local images; nil to refuse local images.
    public var localRoot: String?
  }

  /// `placeholders`: image files; nil for the plain built-in image.
  public struct Placeholders: Sendable, Equatable {
    /// Shown for a job that is not finished.
    public var loading: String?
    /// Shown for a finished job without an image.
    public var failure: String?
  }
}

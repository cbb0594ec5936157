extension Configuration {
  /// `cache`: the HTTP cache (RFC 9111).
  public struct Cache: Sendable, Equatable {
    /// Whether anything is cached.
    public var enabled = true
    /// Bytes kept in memory.
    public var memory = 100_000_000
    /// Bytes kept on disk.
    public var disk = 1_000_000_000
    /// Whether one owner may be answered from what another one fetched.
    public var shared = true
    /// Freshness of a response that says nothing of its own; zero leaves it to the heuristics of
    /// RFC 9111 section 4.2.2.
    public var defaultTTL: Duration = .seconds(86_400)
  }

  /// `storage`: jobs and images on disk.
  public struct Storage: Sendable, Equatable {
    /// The folder; made when it is not there.
    public var path = "./data"
    /// The URL of the PostgreSQL database that keeps jobs; nil: SQLite, in the folder.
    public var jobs: String?
    /// A file with its password; nil: as libpq finds one.
    public var jobsPasswordFile: String?
    /// `s3://bucket/prefix`, where images are kept; nil: files, in the folder.
    public var images: String?
    /// How that bucket is reached.
    public var s3 = ObjectStore()
    /// Bytes of the bucket's images that have a copy in the folder.
    public var localCache = 1_000_000_000
    /// Bytes of all images kept.
    public var maxBytes = 10_000_000_000
    /// Bytes of the records of all jobs, queued or finished; an owner's are at most half while others have some.
    public var maxRecordBytes = 4_000_000_000
    /// Bytes of the disk that only deletions, the ends of jobs and the start may use; 0: none.
    public var reserve = 64_000_000
    /// Bytes of broken-off transfers kept for resuming.
    public var partials = 500_000_000
  }

  /// `storage.s3`: an object store that speaks S3.
  public struct ObjectStore: Sendable, Equatable {
    /// Its URL, without a path; nil: AWS's of that region.
    public var endpoint: String?
    /// What requests are signed for; where the key isn't given, `AWS_REGION` if that is.
    public var region = "us-east-1"
    /// Whether the bucket's name stands in the path; else in the host's name.
    public var isPathStyle = true
    /// An INI file as AWS's tools have it, read again once it has changed; nil: `AWS_ACCESS_KEY_ID` and its like.
    public var credentialsFile: String?
  }

  /// An entry of `destinations`: a bucket of an object store that speaks S3, where jobs may have their images brought.
  public struct Destination: Sendable, Equatable {
    /// What jobs call it: 1…64 of `A-Z a-z 0-9 . _ -`.
    public var name: String
    /// The service's URL, without a path; nil: AWS's of that region.
    public var endpoint: String?
    /// What requests are signed for.
    public var region = "us-east-1"
    /// The bucket's name.
    public var bucket: String
    /// What all keys begin with.
    public var prefix = ""
    /// Whether the bucket's name stands in the path; else in the host's name.
    public var isPathStyle = true
    /// Files with the two halves of an access key; nil: `AWS_ACCESS_KEY_ID` and its like.
    public var keyFiles: KeyFiles?
    /// The names of the tokens whose jobs may use it; nil: all.
    public var owners: [String]?
  }

  /// Two files, each with one half of an access key.
  public struct KeyFiles: Sendable, Equatable {
    /// That of the public half.
    public var access: String
    /// That of the secret half.
    public var secret: String
  }

  /// `sources`: other sources than URLs.
  public struct Sources: Sendable, Equatable {
    /// The folder of local images; nil refuses them.
    public var localRoot: String?
  }

  /// `placeholders`: image files; nil is a plain built-in picture.
  public struct Placeholders: Sendable, Equatable {
    /// For a job that is not finished.
    public var loading: String?
    /// For one that has no image.
    public var failure: String?
  }
}

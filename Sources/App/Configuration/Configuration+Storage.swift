extension Configuration {
  /// `cache`: the HTTP cache (RFC 9111).
  package struct Cache: Sendable, Equatable {
    /// Whether the cache is used.
    package var enabled = true
    /// Maximum bytes of cached images in memory.
    package var memory = 100_000_000
    /// Maximum bytes of cached images on disk.
    package var disk = 1_000_000_000
    /// Whether owners share cached responses.
    package var shared = true
    /// How long a response without freshness information is fresh. With zero, the heuristic of RFC 9111 section 4.2.2 is
    /// used.
    package var defaultTTL: Duration = .seconds(86_400)
  }

  /// `storage`: where jobs and images are stored.
  package struct Storage: Sendable, Equatable {
    /// The folder; created if it does not exist.
    package var path = "./data"
    /// The URL of a PostgreSQL database for jobs; nil for SQLite in the folder.
    package var jobs: String?
    /// A file with the database password; nil to let libpq find one.
    package var jobsPasswordFile: String?
    /// `s3://bucket/prefix` for images; nil for files in the folder.
    package var images: String?
    /// How the bucket of `images` is reached.
    package var s3 = ObjectStore()
    /// Maximum bytes of local copies of the bucket's images.
    package var localCache = 1_000_000_000
    /// Maximum bytes of all stored images.
    package var maxBytes = 10_000_000_000
    /// Maximum bytes of the records of all jobs, queued or finished. One owner may use half of it while other owners have
    /// jobs.
    package var maxRecordBytes = 4_000_000_000
    /// Bytes of disk space reserved for deletions, for finishing jobs and for the start; 0 for none.
    package var reserve = 64_000_000
    /// Maximum bytes of partial transfers kept for resuming.
    package var partials = 500_000_000
  }

  /// `storage.s3`: the S3-compatible object store of `storage.images`.
  package struct ObjectStore: Sendable, Equatable {
    /// The URL of the object store, without a path; nil for AWS in `region`.
    package var endpoint: String?
    /// The region that requests are signed for. If the key is not set, `AWS_REGION` is used.
    package var region = "us-east-1"
    /// Whether the bucket's name is in the URL's path, otherwise in the host name.
    package var isPathStyle = true
    /// An INI file in the format of AWS's tools, read again when it changes. Nil to use `AWS_ACCESS_KEY_ID` and the
    /// related variables.
    package var credentialsFile: String?
  }

  /// An entry of `destinations`: a bucket of an S3-compatible object store that jobs may deliver images to.
  package struct Destination: Sendable, Equatable {
    /// The name that jobs use: 1…64 of `A-Z a-z 0-9 . _ -`.
    package var name: String
    /// The URL of the object store, without a path; nil for AWS in `region`.
    package var endpoint: String?
    /// The region that requests are signed for.
    package var region = "us-east-1"
    /// The bucket's name.
    package var bucket: String
    /// The prefix of all object keys.
    package var prefix = ""
    /// Whether the bucket's name is in the URL's path, otherwise in the host name.
    package var isPathStyle = true
    /// Files with the access key; nil to use `AWS_ACCESS_KEY_ID` and the related variables.
    package var keyFiles: KeyFiles?
    /// The names of the tokens whose jobs may use the destination; nil for all.
    package var owners: [String]?
  }

  /// The files of an access key.
  package struct KeyFiles: Sendable, Equatable {
    /// Path of the file that holds the access key ID.
    package var access: String
    /// Path of the file that holds the secret access key.
    package var secret: String
  }

  /// `sources`: sources of images other than URLs.
  package struct Sources: Sendable, Equatable {
    /// The folder of local images; nil to refuse local images.
    package var localRoot: String?
  }

  /// `placeholders`: image files; nil for the plain built-in image.
  package struct Placeholders: Sendable, Equatable {
    /// Shown for a job that is not finished.
    package var loading: String?
    /// Shown for a finished job without an image.
    package var failure: String?
  }
}

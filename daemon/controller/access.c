/* Who may do what: roles and tenants. What a caller may not see does not exist for them. */
#include "daemon/controller/internal.h"

#include "shared/base/parse.h"

bool access_visible(const struct caller *who, const char *tenant)
{
	/* What waits in a pool is of no tenant, and nobody's to see. */
	return tenant[0] && (who->all_tenants || strcmp(who->tenant, tenant) == 0);
}

const char *access_filter(const struct caller *who)
{
	return who->all_tenants && !who->tenant_asked ? NULL : who->tenant;
}

int access_act_in(struct caller *who, const char *asked, struct error *err)
{
	if (!asked || !*asked)
		return 0;
	if (!tenant_valid(asked))
		return error_set(err, ERR_INVALID, "'%.80s' is not a tenant name", asked);
	if (!access_visible(who, asked))
		return error_set(err, ERR_FORBIDDEN, "you act in tenant '%s', not in '%s'", who->tenant, asked);
	snprintf(who->tenant, sizeof(who->tenant), "%s", asked);
	who->tenant_asked = true;
	return 0;
}

int access_may_mutate(const struct caller *who, struct error *err)
{
	if (who->role == ROLE_OPERATOR || who->role == ROLE_ADMIN)
		return 0;
	return error_set(err, ERR_FORBIDDEN, "a viewer may look but not change anything: ask for the operator role in tenant '%s'",
			 who->tenant);
}

int access_tenant(const struct caller *who, const char *asked, const char **ret, struct error *err)
{
	const char *tenant = asked && asked[0] ? asked : who->tenant;
	if (!tenant_valid(tenant))
		return error_set(err, ERR_INVALID, "spec.tenant: '%.80s' is not a tenant name ([a-z0-9][a-z0-9._-]*, at most %d characters)",
				 tenant, TENANT_MAX_LEN);
	if (!access_visible(who, tenant))
		return error_set(err, ERR_FORBIDDEN, "spec.tenant: you act in tenant '%s', not in '%s'", who->tenant, tenant);
	*ret = tenant;
	return 0;
}

int access_named_tenant(const struct caller *who, const char *asked, const char **ret, struct error *err)
{
	const char *tenant = asked && *asked ? asked : who->tenant;
	if (!tenant_valid(tenant))
		return error_set(err, ERR_INVALID, "tenant: '%.64s' is no tenant name", tenant);
	if (!access_visible(who, tenant))
		return error_set(err, ERR_FORBIDDEN, "you act in tenant '%s', not in '%s'", who->tenant, tenant);
	*ret = tenant;
	return 0;
}
